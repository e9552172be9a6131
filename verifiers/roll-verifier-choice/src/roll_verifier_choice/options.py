"""The options of a question: their labels and, where they are known, their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_uppercase

from roll_verifier_choice.text import exact_form, loose_form

MAX_OPTIONS = 26


@dataclass(frozen=True)
class Options:
    """Labels and texts by position. Labels are Latin letters, numbers, or single other letters as declared."""

    labels: tuple[str, ...] = tuple(ascii_uppercase)
    texts: tuple[str | None, ...] = ()
    """Empty, or one for each label; None where unknown."""
    is_closed: bool = False
    """Whether these are all the options there are."""

    @cached_property
    def label(self) -> str:
        """A regular expression of one label, or of a letter or number that could be one but is not."""
        return _label_source(self.labels)

    def find_label(self, label: str) -> int | None:
        """Position of a label; lower case counts as upper case where the labels are letters."""
        for written in (label, label.upper()):
            if written in self.labels:
                return self.labels.index(written)
        return None

    def find_text(self, text: str) -> int | None:
        """Position of the one option with this text: exactly, else apart from markup, case and edges."""
        if not self.texts:
            return None
        for form, known in ((exact_form, self._exact), (loose_form, self._loose)):
            wanted = form(text)
            hits = [i for i, own in enumerate(known) if own == wanted and own]
            if len(hits) == 1:
                return hits[0]
            if hits:
                return None
        return None

    def begins_with(self, text: str) -> frozenset[int]:
        """Options whose text `text` begins with, as whole words."""
        start = loose_form(text)
        return frozenset(
            i
            for i, own in enumerate(self._loose)
            if own and start.startswith(own) and not start[len(own) :][:1].isalnum()
        )

    @cached_property
    def _exact(self) -> tuple[str, ...]:
        return tuple(exact_form(text or "") for text in self.texts)

    @cached_property
    def _loose(self) -> tuple[str, ...]:
        return tuple(loose_form(text or "") for text in self.texts)


@lru_cache(maxsize=256)
def closed_options(labels: tuple[str, ...], texts: tuple[str, ...]) -> Options:
    """All options of a question; kept, since many responses to one question are judged in a row."""
    return Options(labels, texts, is_closed=True)


@lru_cache(maxsize=64)
def _label_source(labels: tuple[str, ...]) -> str:
    if all(label.isascii() and label.isdigit() for label in labels):
        return r"(?<![\w.])\d{1,2}(?!\w|[.,/]\d)"
    extra = "|".join(re.escape(label) for label in labels if not (label.isascii() and label.isalpha()))
    body = f"[A-Za-z]|{extra}" if extra else "[A-Za-z]"
    return rf"(?<![A-Za-z0-9\\])(?:{body})(?![A-Za-z0-9]|['’][A-Za-z])"
