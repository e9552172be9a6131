"""Policies for comparing what a program printed with what it should have printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal

from roll_verifier_code.errors import TaskError, nearest

Compare = Callable[[bytes, str], bool]
"""(stdout, expected text) to whether they are equal."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS = 400
"""Longer tokens are compared as text only."""
POLICIES = ("tokens", "lines", "exact", "float:T", "decimals:T")


def comparison(policy: object) -> Compare:
    """The comparison that a policy names.

    * `tokens`: the same texts between blanks; letter case and control characters count.
    * `lines`: the same lines, blanks at both ends of each line and of the whole left out.
    * `exact`: the same bytes.
    * `float:T`: as many tokens, each pair the same text or two finite numbers with |got - want| <= T * max(1, |want|).
    * `decimals:T`: as `float:T` where the expected token has a point or an exponent; an expected integer must be met
      exactly in value ("3.0" meets "3").

    Raises:
        TaskError: there is no such policy.
    """
    if policy == "tokens":
        return _tokens
    if policy == "lines":
        return _lines
    if policy == "exact":
        return _exact
    name, _, text = str(policy).partition(":")
    if name in ("float", "decimals") and _NUMBER.fullmatch(text) and 0.0 <= float(text) < math.inf:
        return _Numbers(float(text), exact_integers=name == "decimals")
    raise TaskError(f"'compare' is {policy!r:.60}; it must be one of {', '.join(POLICIES)}{nearest(policy, POLICIES)}")


def _text(stdout: bytes) -> str:
    return stdout.decode("utf-8", "replace")


def _tokens(stdout: bytes, want: str) -> bool:
    got = _text(stdout)
    return got == want or got.split() == want.split()


def _lines(stdout: bytes, want: str) -> bool:
    got = _text(stdout)
    return got == want or _stripped_lines(got) == _stripped_lines(want)


def _stripped_lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _exact(stdout: bytes, want: str) -> bool:
    return stdout == want.encode("utf-8")


class _Numbers:
    """Compares token by token, numbers within a tolerance."""

    def __init__(self, tolerance: float, *, exact_integers: bool) -> None:
        self._tolerance = tolerance
        self._exact_integers = exact_integers

    def __call__(self, stdout: bytes, want: str) -> bool:
        got, wanted = _text(stdout).split(), want.split()
        return len(got) == len(wanted) and all(map(self._same, got, wanted))

    def _same(self, got: str, want: str) -> bool:
        if got == want:
            return True
        if max(len(got), len(want)) > _MAX_DIGITS or not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(want)):
            return False
        if self._exact_integers and not set(want) & set(".eE"):
            return Decimal(got) == Decimal(want)
        x, y = float(got), float(want)
        return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= self._tolerance * max(1.0, abs(y))
