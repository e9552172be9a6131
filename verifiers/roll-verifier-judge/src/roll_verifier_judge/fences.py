"""Fenced blocks of Markdown text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_OPENING = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)\n?")


@dataclass(frozen=True, slots=True)
class Fenced:
    """A fenced block: where it stands, and the text between its fences."""

    start: int
    end: int
    inside: str


def fenced_blocks(text: str) -> Iterator[Fenced]:
    """The fenced blocks of a text in their order; one that is not closed reaches to the end."""
    start, inside, closing, position = -1, 0, "", 0
    for line in text.splitlines(keepends=True):
        if closing:
            bare = line.strip()
            if bare.startswith(closing) and not bare.strip(closing[0]):
                yield Fenced(start, position + len(line.rstrip("\n")), text[inside:position])
                closing = ""
        else:
            opening = _OPENING.fullmatch(line)
            if opening is not None and not (opening[1][0] == "`" and "`" in opening[2]):
                start, inside, closing = position, position + len(line), opening[1]
        position += len(line)
    if closing:
        yield Fenced(start, len(text), text[inside:])


def without_fences(text: str, is_wanted: Callable[[str], bool], blank: str) -> str:
    """The text with the contents of its fenced blocks replaced.

    A block that is the whole text is opened, and so is one of which `is_wanted` says, given the text right before it,
    that it belongs there; every other becomes `blank`.
    """
    text = text.strip()
    parts: list[str] = []
    done = 0
    for block in fenced_blocks(text):
        if block.start == 0 and block.end == len(text):
            return block.inside.strip()
        before = text[max(0, block.start - 80) : block.start]
        parts += [text[done : block.start], block.inside if is_wanted(before) else blank]
        done = block.end
    return "".join([*parts, text[done:]])
