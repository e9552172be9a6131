"""Text of a program's own, made fit for logs, terminals and files."""

from __future__ import annotations

import re

_HARMFUL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but for tab and newlines, marks that turn the direction of text, and halves of surrogate pairs."""
_IN_CODE = re.compile(f"[{_HARMFUL}]")
_IN_LINE = re.compile(f"[{_HARMFUL}\t\n\r\u2028\u2029]")


def escape_code(text: str) -> str:
    """Write control characters as Python does in a string; tabs and line ends stay."""
    return _IN_CODE.sub(_escaped, text)


def escape_line(text: str) -> str:
    """The same, with tabs and line ends written so too: one line."""
    return _IN_LINE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
