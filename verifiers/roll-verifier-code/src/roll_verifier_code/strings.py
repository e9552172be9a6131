"""Finds the triple-quoted strings of Python source, in time that grows with its length and not faster."""

from __future__ import annotations

import re

_MARK = re.compile(r"\"\"\"|'''|[\"'#]")
_REST = {'"': re.compile(r'(?:\\.|[^"\\])*+"'), "'": re.compile(r"(?:\\.|[^'\\])*+'")}
"""What ends a string that a quotation mark began, on the same line."""


def after_strings(line: str, string: str = "") -> str:
    """The delimiter of the triple-quoted string that is open behind `line`, or "".

    A quotation mark that nothing closes on its line is passed over (an apostrophe of prose).

    Args:
        line: one line of Python.
        string: the delimiter that is open before it.
    """
    position = 0
    never_closed: set[str] = set()
    while True:
        if string:
            position = line.find(string, position)
            if position < 0:
                return string
            position, string = position + 3, ""
        mark = _MARK.search(line, position)
        if mark is None or mark[0] == "#":
            return ""
        position = mark.end()
        if len(mark[0]) == 3:
            string = mark[0]
        elif mark[0] not in never_closed:
            closed = _REST[mark[0]].match(line, position)
            if closed is None:  # then no later mark of the kind is closed on this line either
                never_closed.add(mark[0])
            else:
                position = closed.end()


class StringTracker:
    """Tells of growing positions of a text whether they stand in a triple-quoted string; each line is read once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._string = ""  # open where the line begins that is still to be read
        self._line = 0
        self._closing: dict[str, int] = {}  # where a delimiter comes next, as found last

    def restart(self, position: int) -> None:
        """Forget what came before: no string is open at this position."""
        self._string, self._line = "", position

    def end_of_string(self, start: int, end: int) -> int:
        """Where the string ends, behind `end`, that is open at `start`; 0 when none is, or it never ends."""
        while (newline := self._text.find("\n", self._line, start)) >= 0:
            self._string = after_strings(self._text[self._line : newline], self._string)
            self._line = newline + 1
        string = after_strings(self._text[self._line : start], self._string)
        if not string:
            return 0
        found = self._closing.get(string, 0)
        if 0 <= found < end:
            found = self._closing[string] = self._text.find(string, end)
        return found + 3 if found >= 0 else 0
