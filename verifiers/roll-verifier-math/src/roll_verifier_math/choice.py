"""Multiple choice: the letter that an answer picks."""

from __future__ import annotations

import re

_LETTER = re.compile(r"(?:\\text(?:bf)?|\\mathrm|\\mathbf)?\s*\{?\s*\(?\s*([A-J])\s*\)?\s*\}?\s*\.?")
_PICK = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{\s*)?\(?([A-J])(?:[)}.:]+|$)"
    r"(?P<rest>$|[\s\\].*)",
    re.DOTALL | re.IGNORECASE,
)
_SECOND = re.compile(r"\b(?:and|or)\b|(?<![A-Za-z])\(?[A-J]\)?(?![A-Za-z])(?=\s*(?:$|[,;.]))")


def choice_letter(text: str) -> str | None:
    r"""The letter of an answer that is nothing else: "B", "(B)", "\text{B}", "B."."""
    match = _LETTER.fullmatch(text.strip().strip("$"))
    return match[1] if match else None


def picked_letter(text: str) -> str | None:
    r"""The letter that an answer starts with, as in "(B) 42", "B: because", "Option B"; None when it picks two."""
    alone = choice_letter(text)
    if alone:
        return alone
    match = _PICK.match(text.strip().strip("$"))
    if match is None or not match[1].isupper() or _SECOND.search(match["rest"][:40]):
        return None
    return match[1]
