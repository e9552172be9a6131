"""Regular expressions under a time limit.

The patterns are the task's, the text is the policy's: a pattern that is fine on ordinary text may take for ever on a
text made for it. The `regex` package checks the clock while it matches, in any thread, without signals.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import regex

Mode = Literal["full", "search"]

MAX_PATTERN_CHARS = 10_000
_PROBE_S = 0.5
"""Least seconds that an ordinary text is given."""
_ORDINARY = (
    "The answer is 42, because six times seven makes forty-two.\n",
    "one two three four five six seven eight nine ten " * 4,
    '{"name": "Ada", "born": 1815, "tags": ["x", "y"]}',
    "2024-01-31T12:00:00Z 3.14159 +1 (555) 123-4567 user@example.org",
    "a",
    "",
)


class BadPatternError(Exception):
    """A pattern that does not compile, or is too slow for ordinary text; the message says why."""


class TooSlowError(Exception):
    """The text took a pattern over its time limit."""


@lru_cache(maxsize=1024)
def compiled(pattern: str, flags: str = "") -> regex.Pattern[str]:
    """Compile a pattern.

    Args:
        pattern: in the syntax of Python's `re`, and what the `regex` package adds.
        flags: letters out of "imsx".

    Raises:
        BadPatternError: it does not compile or is longer than `MAX_PATTERN_CHARS`.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPatternError(f"the pattern has {len(pattern)} characters, more than {MAX_PATTERN_CHARS}")
    known = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "x": regex.VERBOSE}
    if not set(flags) <= known.keys():
        raise BadPatternError(f"flags must be letters of 'imsx', got {flags!r:.60}")
    bits = regex.VERSION0
    for letter in flags:
        bits |= known[letter]
    try:
        return regex.compile(pattern, bits)
    except (regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        raise BadPatternError(f"the pattern {pattern!r:.100} does not compile: {error}") from error


def matches(pattern: regex.Pattern[str], text: str, *, mode: Mode, timeout_s: float) -> bool:
    """Whether the text matches.

    Raises:
        TooSlowError: not within `timeout_s` seconds, though the pattern is quick enough on ordinary text.
        BadPatternError: the pattern is too slow for ordinary text too.
    """
    try:
        return _attempt(pattern, text, mode, timeout_s)
    except TimeoutError as error:
        _check_speed(pattern, mode, max(timeout_s, _PROBE_S))
        raise TooSlowError(f"the text takes the pattern {pattern.pattern!r:.100} over {timeout_s:g} s") from error


def _check_speed(pattern: regex.Pattern[str], mode: Mode, timeout_s: float) -> None:
    """Try a pattern on short ordinary texts.

    Raises:
        BadPatternError: one of them is not done within `timeout_s` seconds.
    """
    for text in _ORDINARY:
        try:
            _attempt(pattern, text, mode, timeout_s)
        except TimeoutError as error:
            reason = f"the pattern {pattern.pattern!r:.100} takes more than {timeout_s:g} s on {text!r:.60}"
            raise BadPatternError(reason) from error


def _attempt(pattern: regex.Pattern[str], text: str, mode: Mode, timeout_s: float) -> bool:
    attempt = pattern.fullmatch if mode == "full" else pattern.search
    return attempt(text, timeout=timeout_s) is not None
