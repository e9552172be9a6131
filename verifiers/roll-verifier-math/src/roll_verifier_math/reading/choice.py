"""Multiple choice: the letter that an answer picks."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WRAPPER = re.compile(
    r"\\(?:text|textbf|textrm|textit|textsf|mathrm|mathbf|mathsf|boxed|fbox)\s*\{|[{}$*`]|\\[ ,;:!]|\\quad"
)
_ALONE = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)\s*(?:is|:)?\s*)?[(\[]?([A-Ja-j])[)\]]?\s*[.:]*",
    re.IGNORECASE,
)
_PICK = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(([A-J])\)\s*[.:]?|([A-J])\s*[).:]+)\s*(?P<rest>\S.*)", re.DOTALL
)
_SECOND = re.compile(
    r"\b(?:and|or|not|[Ww]ait|[Aa]ctually|[Bb]ut)\b|(?<![A-Za-z\\])[B-HJ](?![A-Za-z])|(?<![A-Za-z\\])[AI](?=\s*(?:$|[,;.:)]|is\b|was\b))"
)
"""Another letter, or a word of doubt, behind the letter."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter, and whether the text is nothing but the letter."""

    letter: str
    is_alone: bool


def choice_of(text: str) -> Choice | None:
    r"""The letter that a text picks, as in "B", "(B)", "Option B", "(B) 42", "B: because"; None when it picks two."""
    if len(text) > 400:
        return None
    bare = _WRAPPER.sub(" ", text).strip()
    if alone := _ALONE.fullmatch(bare):
        return Choice(alone[1], is_alone=True) if alone[1].isupper() else None
    pick = _PICK.fullmatch(bare)
    if pick is None or _SECOND.search(pick["rest"]):
        return None
    return Choice(pick[1] or pick[2], is_alone=False)


def same_choice(gold: str, answer: str) -> bool | None:
    """Whether both pick the same letter; None when they are no choices, or none of them is the letter alone."""
    if (one := choice_of(gold)) is None or (two := choice_of(answer)) is None:
        return None
    return one.letter == two.letter if one.is_alone or two.is_alone else None
