"""What a constraint is, and how its keyword arguments are read."""

from __future__ import annotations

import dataclasses
import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

from roll_verifier_instructions.text import has_words


class BrokenTaskError(ValueError):
    """The reference cannot be read; the message says what is wrong with it. Never the policy's doing."""


def as_text(value: Any) -> str:
    """A text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not blank")
    return value.strip()


def _as_texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError("must be a list of texts, not empty")
    return tuple(map(as_text, value))


def _as_count(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0 or value % 1:
        raise ValueError("must be a whole number from 0")
    return int(value)


def _as_position(value: Any) -> int:
    count = _as_count(value)
    if count == 0:
        raise ValueError("must be a whole number from 1")
    return count


def _as_relation(value: Any) -> Literal["at least", "less than"]:
    if value == "at least":
        return "at least"
    if value == "less than":
        return "less than"
    raise ValueError("must be 'at least' or 'less than'")


Text = Annotated[str, as_text]
"""A text that is not blank, stripped."""
Texts = Annotated[tuple[str, ...], _as_texts]
"""A list of such texts, at least one."""
Count = Annotated[int, _as_count]
"""A whole number from 0; 3.0 is one, since tables make floats of it."""
Position = Annotated[int, _as_position]
"""A whole number from 1."""
Relation = Annotated[Literal["at least", "less than"], _as_relation]
"""One of the two comparisons of IFEval."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one constraint is followed, and what was found."""

    is_followed: bool
    reason: str = ""


@dataclass(frozen=True)
class Constraint(ABC):
    """One checkable instruction.

    Fields of a subclass are the keyword arguments of the reference; each is annotated with the function that reads it
    (`Text`, `Count`, …), which raises `ValueError` with the end of a sentence.
    """

    id: ClassVar[str]
    judges_repetition: ClassVar[bool] = False
    """Whether the request that `combination:repeat_prompt` has the policy repeat is part of what is judged."""

    def check(self, text: str) -> Finding:
        """Judge a cleaned text (`text.clean`); one without a letter or digit follows nothing."""
        return self._check(text) if has_words(text) else Finding(False, "nothing to judge")

    @abstractmethod
    def _check(self, text: str) -> Finding:
        """Judge a text that holds at least one letter or digit."""

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> Self:
        """Build the constraint from the keyword arguments of the reference; those that are None are left out.

        Raises:
            BrokenTaskError: an argument is missing, unknown or of a wrong value.
        """
        given = {key: value for key, value in kwargs.items() if value is not None}
        readers = _readers(cls)
        for key in sorted(given.keys() - readers.keys()):
            known = f"it has {', '.join(map(repr, readers))}" if readers else "it has none"
            raise BrokenTaskError(f"'{cls.id}' has no argument {key!r}; {known}{nearest(key, readers)}")
        values: dict[str, Any] = {}
        for name, read in readers.items():
            if name not in given:
                raise BrokenTaskError(f"'{cls.id}' needs the argument '{name}'")
            try:
                values[name] = read(given[name])
            except ValueError as error:
                raise BrokenTaskError(f"argument '{name}' of '{cls.id}' {error}, got {given[name]!r:.80}") from error
        return cls(**values)


@cache
def _readers(kind: type[Constraint]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in dataclasses.fields(kind)}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for messages: "; did you mean …?" with the known names that are near, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def compare(found: int, relation: Relation, bound: int, what: str) -> Finding:
    """The finding about a count: `found >= bound` or `found < bound`."""
    is_followed = found >= bound if relation == "at least" else found < bound
    return Finding(is_followed, f"{found} {what}, wanted {relation} {bound}")
