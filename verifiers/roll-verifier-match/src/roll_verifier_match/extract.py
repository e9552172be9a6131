r"""The stretch of a response that is compared: all of it, its last line, an `<answer>` tag, a box."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from roll_core.types import without_thinking

Extract = Literal["whole", "raw", "last_line", "tag", "boxed"]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TAG = re.compile(r"</?answer>", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:[\s$,;.()\[\]\\&*|/]|and\b|or\b)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found."""

    text: str | None
    """None without an answer."""
    is_hedged: bool = False
    """Whether different answers stand in one row (`\\boxed{A} or \\boxed{B}`)."""


def extract(response: str, mode: Extract) -> Extraction:
    """Find what is to be compared. Thinking counts only in "raw"; elsewhere one that was not closed leaves nothing."""
    text = response if mode == "raw" else without_thinking(response)
    if mode in ("whole", "raw"):
        return Extraction(text)
    if mode == "last_line":
        return Extraction(text.rstrip().rpartition("\n")[2])
    return _last_of_row(text, _tags(text) if mode == "tag" else _boxes(text))


@dataclass(frozen=True, slots=True)
class _Span:
    """A tag or box, and its content."""

    start: int
    end: int
    content: str
    is_closed: bool = True


def _last_of_row(text: str, spans: list[_Span]) -> Extraction:
    """The last span, refused when others beside it in one row say something else."""
    if not spans or not spans[-1].is_closed:
        return Extraction(None)
    last = spans[-1]
    for before, after in zip(reversed(spans[:-1]), reversed(spans), strict=False):
        if not _BETWEEN.fullmatch(text, before.end, after.start):
            break
        if before.content.strip() != last.content.strip():
            return Extraction(last.content, is_hedged=True)
    return Extraction(last.content)


def _tags(text: str) -> list[_Span]:
    spans: list[_Span] = []
    opened: re.Match[str] | None = None
    for match in _TAG.finditer(text):
        if not match[0].startswith("</"):
            opened = match
        elif opened is not None:
            spans.append(_Span(opened.start(), match.end(), text[opened.end() : match.start()]))
            opened = None
    if opened is not None:
        spans.append(_Span(opened.start(), len(text), "", is_closed=False))
    return spans


def _boxes(text: str) -> list[_Span]:
    spans: list[_Span] = []
    position = 0
    while (match := _BOX.search(text, position)) is not None:
        end = _closing(text, match.end() - 1)
        if end is None:
            spans.append(_Span(match.start(), len(text), "", is_closed=False))
            break
        spans.append(_Span(match.start(), end, text[match.end() : end - 1]))
        position = end
    return spans


def _closing(text: str, begin: int) -> int | None:
    depth = 0
    for match in _BRACE.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return None
