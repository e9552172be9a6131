"""Limits, checked on text before any parser sees it, and on values before they are computed."""

from __future__ import annotations

MAX_RESPONSE_CHARS = 200_000
"""Only this much of the end of a response is searched for an answer."""
MAX_ANSWER_CHARS = 2_000
MAX_DEPTH = 50
"""Nested brackets, and nested calls of the parser."""
MAX_DIGITS = 1_000
"""Digits of one literal."""
MAX_NODES = 400
MAX_LEVELS = 60
"""Levels of a tree."""
MAX_ITEMS = 50
"""Items of a list, set or tuple."""
MAX_BITS = 60_000
"""Size of an exact value, numerator and denominator together."""
MAX_FACTORIAL = 5_000


class RefusedError(Exception):
    """A text that cannot be read as mathematics."""


class TooCostlyError(RefusedError):
    """A text or value beyond the limits of this module."""


def check_text(text: str) -> None:
    """Refuse texts that are too long, too deep, or hold too long a number.

    Raises:
        TooCostlyError: a limit is exceeded.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise TooCostlyError(f"{len(text)} characters, more than {MAX_ANSWER_CHARS}")
    depth = digits = 0
    for character in text:
        digits = digits + 1 if character.isdigit() else 0
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise TooCostlyError(f"brackets nested deeper than {MAX_DEPTH}")
        if digits > MAX_DIGITS:
            raise TooCostlyError(f"a number of more than {MAX_DIGITS} digits")
