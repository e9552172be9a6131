r"""Boxes: `\boxed{...}` and its relatives, the last one, or the last ones where they stand side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = ("\\boxed", "\\fbox", "\\framebox")
_OPENING = re.compile(r"\\(?:boxed|fbox|framebox)\s*")
_UNBRACED = re.compile(r"-?\d+(?:\.\d+)?|\\[a-zA-Z]+|[A-Za-z]")
_MOST_BOXES = 60
_FARTHEST = 160
"""Characters between two boxes of one row."""
_SIDE_BY_SIDE = re.compile(
    r"(?:\s|[$,;.()\[\]\\&*/|:]|\\q?quad\b|\\text\s*\{\s*(?:,\s*)?(?:and|or)\s*\}|and\b|or\b)*", re.IGNORECASE
)
_REVISED = re.compile(
    r"\bnot\b|n't\b|correct|actually|mistake|\bslip\b|instead|\bwait\b|wrong|error|rather|\bshould\b|\bno\b|\bfix|"
    r"re-?check|revis|oops|sorry|redo|\bbut\b(?!.*\b(?:could|might|may|maybe|perhaps|possibly)\b)",
    re.IGNORECASE | re.DOTALL,
)
_HEDGED = re.compile(
    r"\b(?:or|alternatively|alternative|either|another|else|otherwise|if|when|depending|maybe|perhaps|possibly|could|"
    r"might|may|also|and|as well as|(?:first|second|third|other)\s+(?:answer|solution|case|option|root|value)|"
    r"possibility|(?:answer|solution|case|option|part|root|value)\s*(?:\d|[a-z]\b|two\b|#))",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"\s*(?:\?+|\.{3}|_+|\\l?dots|\\quad|(?:\\text\{)?(?:your |final )?answer\}?|)\s*", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n\s*\n|。")
_DENIED_BEFORE = re.compile(r"(?:\bnot|n't|\bnever)\s*(?:\bbe\s*)?[$\\(\[\s]*$", re.IGNORECASE)
_DENIED_AFTER = re.compile(r"[$\\)\]\s]*(?:is|was|would be|seems)\s+(?:not\b|wrong|incorrect|n't)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Box:
    """Where a box stands, and what is in it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """Contents of boxes side by side, and where the last of them ends."""

    texts: tuple[str, ...]
    end: int

    @property
    def is_placeholder(self) -> bool:
        """Whether they only show where an answer would go, as in a question that is repeated."""
        return all(_PLACEHOLDER.fullmatch(text) for text in self.texts)


def last_boxes(text: str) -> Row | None:
    """The last box and those it stands side by side with.

    None without any box; an empty row when the last box never closes, or is there to be denied.
    """
    start = _last_start(text, len(text))
    if start < 0:
        return None
    box = _box_at(text, start)
    if box is None:
        return Row((), len(text))
    box = _outermost(text, box)
    if _DENIED_BEFORE.search(text[max(0, box.start - 20) : box.start]) or _DENIED_AFTER.match(text, box.end):
        return Row((), len(text))
    row = [box]
    while len(row) < _MOST_BOXES:
        previous = _last_start(text, row[0].start)
        before = _box_at(text, previous) if previous >= 0 else None
        if before is None or before.end > row[0].start or not _is_row(text[before.end : row[0].start]):
            break
        row.insert(0, before)
    return Row(tuple(one.text for one in row), box.end)


def _last_start(text: str, end: int) -> int:
    return max(text.rfind(name, 0, end) for name in _NAMES)


def _outermost(text: str, box: Box) -> Box:
    """The box that encloses this one, when one does."""
    for _ in range(8):
        start = _last_start(text, box.start)
        outer = _box_at(text, start) if start >= 0 and box.start - start < _FARTHEST else None
        if outer is None or outer.end < box.end:
            return box
        box = outer
    return box


def _is_row(between: str) -> bool:
    """Whether what stands between two boxes makes them one answer, or an open choice, rather than a revision."""
    if len(between) > _FARTHEST:
        return False
    if _SIDE_BY_SIDE.fullmatch(between):
        return True
    if _REVISED.search(between) or "\n\n" in between:
        return False
    return bool(_HEDGED.search(between)) or not _SENTENCE_END.search(between)


def _box_at(text: str, start: int) -> Box | None:
    opening = _OPENING.match(text, start)
    if opening is None:
        return None
    begin = opening.end()
    if text[begin : begin + 1] != "{":
        token = _UNBRACED.match(text, begin)
        return Box(start, token.end(), token[0]) if token else None
    end = _closing(text, begin, escapes=True)
    if end is None and (end := _closing(text, begin, escapes=False)) is not None and text[end - 1] != "\\":
        return None  # an escaped brace may close a box only as its last character, as in `\boxed{5\}`
    return None if end is None else Box(start, end + 1, text[begin + 1 : end])


def _closing(text: str, begin: int, *, escapes: bool) -> int | None:
    depth = 0
    position = begin
    while position < len(text):
        character = text[position]
        if character == "\\" and escapes:
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None
