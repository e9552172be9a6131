"""Limits: on texts before any parser sees them, on values before they are computed, on the work of one comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

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
"""Size of an exact value, numerator and denominator each."""
MAX_FACTORIAL = 5_000
MAX_WORK = 60_000
"""Work of one comparison, in units of about five microseconds."""
PROOF_SECONDS = 1.0
"""Time for all proofs of one comparison."""


class RefusedError(Exception):
    """A text that cannot be read as mathematics."""


class TooLargeError(RefusedError):
    """A text beyond the limits of this module."""


class TooCostlyError(RefusedError):
    """A value or a comparison beyond the limits of this module."""


class OutOfWorkError(TooCostlyError):
    """A comparison that has spent its work."""


_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
_BRACKETS = re.compile(r"[()\[\]{}]")


def check_text(text: str) -> None:
    """Refuse texts that are too long, too deep, or hold too long a number.

    Raises:
        TooLargeError: a limit is exceeded.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise TooLargeError(f"{len(text)} characters, more than {MAX_ANSWER_CHARS}")
    if len(text) > MAX_DIGITS and _DIGITS.search(text):
        raise TooLargeError(f"a number of more than {MAX_DIGITS} digits")
    if len(text) <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "([{" else -1
        if depth > MAX_DEPTH:
            raise TooLargeError(f"brackets nested deeper than {MAX_DEPTH}")


@dataclass(slots=True)
class Meter:
    """What one comparison may still spend, and values it has found already."""

    work: int = MAX_WORK
    proof_seconds: float = PROOF_SECONDS
    values: dict[tuple[int, int, int], tuple[Any, ...]] = field(default_factory=dict)
    """Numeric values, by the identities of a tree and of a point, and the digits; the entries keep both alive."""
    forms: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Algebraic forms (None where there is none), by the identity of a tree."""


_meter: ContextVar[Meter | None] = ContextVar("roll_verifier_math_meter", default=None)


@contextmanager
def metered(*, prove: bool = True) -> Iterator[Meter]:
    """Bound the work of everything inside, in this thread or task.

    Args:
        prove: whether proofs may be tried.
    """
    meter = Meter(proof_seconds=PROOF_SECONDS if prove else 0.0)
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def current_meter() -> Meter:
    """The meter of the innermost `metered`; a fresh one outside of it."""
    return _meter.get() or Meter()


def spend(work: int) -> None:
    """Count work.

    Raises:
        OutOfWorkError: none is left.
    """
    meter = _meter.get()
    if meter is None:
        return
    meter.work -= work
    if meter.work < 0:
        raise OutOfWorkError("too much work")
