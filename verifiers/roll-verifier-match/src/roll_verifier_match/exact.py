"""`exact`: the answer is the reference's text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_match.extract import Extract, extract

_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class ExactVerifier:
    r"""Accepts an answer that is the reference character for character, apart from what the options leave out.

    * `CORRECT`: equal ("equal").
    * `INCORRECT`: not equal ("different"), longer than `max_chars` ("too_long"), or different answers in one row of
      boxes or tags ("hedged").
    * `INVALID`: no tag or box where one is asked for, or nothing in it ("no_answer").
    * `UNDECIDED`: the reference is no text or number, empty, or too long ("bad_reference").

    Args:
        extract: what of the response is compared: "whole", "raw" (with its thinking), "last_line" (the last that is not
            blank), "tag" (the last `<answer>…</answer>`), "boxed" (the last `\boxed{}`).
        case: whether letter case counts.
        whitespace: "strip" leaves out blanks around, "collapse" also makes every run of blanks one space, "remove"
            leaves out all, "keep" none.
        unicode: normal form before the comparison; "NFKC" makes full-width forms, ligatures and superscripts plain.
        punctuation: "keep" all, "strip" leaves out what is around the text, "remove" all of it (Unicode category P).
        any_of: references are lists of alternatives, one of which must be met.
        max_chars: longest answer that is looked at, in characters.

    Raises:
        ValueError: `max_chars` is not positive.
    """

    extract: Extract = "whole"
    case: bool = True
    whitespace: Literal["keep", "strip", "collapse", "remove"] = "strip"
    unicode: Literal["none", "NFC", "NFKC"] = "NFC"
    punctuation: Literal["keep", "strip", "remove"] = "keep"
    any_of: bool = False
    max_chars: int = 10_000

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise ValueError(f"max_chars must be positive, got {self.max_chars}")

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
    ) -> Verdict:
        """Judge one response.

        Args:
            response: what the policy wrote.
            reference: the right text or number; `{"any_of": [...]}` for alternatives, or a plain list with the
                option `any_of`.
            prompt: not looked at.
            rollout: not looked at.
        """
        alternatives = self._alternatives(reference)
        if not alternatives:
            reason = f"the reference is no text that can be met (a list needs any_of): {reference!r:.100}"
            return Verdict.undecided(reason, detail="bad_reference")
        found = extract(response, self.extract)
        if found.text is None:
            return Verdict.invalid(f"the response has no {self.extract} answer", detail="no_answer")
        if found.is_hedged:
            return Verdict.incorrect(found.text[:_SHOWN], detail="hedged", reason="different answers in one row")
        if len(found.text) > self.max_chars:
            reason = f"{len(found.text)} characters, at most {self.max_chars}"
            return Verdict.incorrect(found.text[:_SHOWN], detail="too_long", reason=reason)
        return self._compare(found.text, alternatives)

    def _compare(self, text: str, alternatives: list[str]) -> Verdict:
        answer = self._normal(text)
        if not answer.strip():
            return Verdict.invalid("the answer is empty", detail="no_answer")
        if answer in alternatives:
            return Verdict.correct(text.strip()[:_SHOWN], detail="equal")
        return Verdict.incorrect(text.strip()[:_SHOWN], detail="different")

    def _alternatives(self, reference: Any) -> list[str]:
        """What may be met, in normal form; empty when the reference is broken."""
        if isinstance(reference, Mapping):
            values = reference.get("any_of") if reference.keys() == {"any_of"} else None
        else:
            values = reference if self.any_of and isinstance(reference, list | tuple) else [reference]
        texts = [_as_text(value) for value in values] if isinstance(values, list | tuple) else []
        normal = [self._normal(text) for text in texts if text is not None and len(text) <= self.max_chars]
        return normal if len(normal) == len(texts) and all(text.strip() for text in normal) else []

    def _normal(self, text: str) -> str:
        if self.unicode != "none":
            text = unicodedata.normalize(self.unicode, text)
        if not self.case:
            text = text.casefold()
        if self.punctuation == "remove":
            text = "".join(c for c in text if not _is_punctuation(c))
        if self.punctuation == "strip":
            text = _without_edges(text)
        if self.whitespace == "strip":
            return text.strip()
        if self.whitespace == "keep":
            return text
        return re.sub(r"\s+", " " if self.whitespace == "collapse" else "", text).strip()


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")


def _without_edges(text: str) -> str:
    start, end = 0, len(text)
    while start < end and (_is_punctuation(text[start]) or text[start].isspace()):
        start += 1
    while end > start and (_is_punctuation(text[end - 1]) or text[end - 1].isspace()):
        end -= 1
    return text[start:end]


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None if isinstance(value, bool) or not isinstance(value, int | float) else str(value)
