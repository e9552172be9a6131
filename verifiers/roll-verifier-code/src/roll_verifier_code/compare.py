"""Policies for comparing what a program printed with what it should have printed."""

from __future__ import annotations

import codecs
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, zip_longest
from typing import TypeVar

from roll_verifier_code.errors import TaskError, nearest, shown

Compare = Callable[[bytes, str], bool]
"""(stdout, expected text) to whether they are equal."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
"""A number whose exponent is small enough to calculate with; a larger one is compared as text."""
_PIECE = 1 << 16
"""Bytes or characters that are split up at a time, so that a large output takes little memory."""
_MAX_DIGITS = 400
"""Longer tokens are compared as text only."""
_Part = TypeVar("_Part")
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
    name, _, text = policy.partition(":") if isinstance(policy, str) else ("", "", "")
    if name in ("float", "decimals") and _NUMBER.fullmatch(text) and 0.0 <= float(text) < math.inf:
        return _Numbers(float(text), exact_integers=name == "decimals")
    raise TaskError(f"'compare' is {shown(policy)}; it must be one of {', '.join(POLICIES)}{nearest(policy, POLICIES)}")


def _decoded(stdout: bytes) -> Iterator[str]:
    """The text of an output, piece by piece; what is no UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(stdout), _PIECE):
        yield decoder.decode(stdout[start : start + _PIECE])
    yield decoder.decode(b"", final=True)


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _words(pieces: Iterable[str]) -> Iterator[str]:
    """What `"".join(pieces).split()` holds, without holding all of it."""
    open_word: list[str] = []
    for piece in filter(None, pieces):
        words = piece.split()
        if open_word and piece[0].isspace():
            yield "".join(open_word)
            open_word = []
        for number, word in enumerate(words):
            if number:
                yield "".join(open_word)
                open_word = []
            open_word.append(word)
        if open_word and piece[-1].isspace():
            yield "".join(open_word)
            open_word = []
    if open_word:
        yield "".join(open_word)


def _stripped_lines(pieces: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Every line with something on it, its ends stripped, and how many blank lines stand between it and the last."""
    blank = 0
    has_begun = False
    open_line: list[str] = []
    for piece in chain(pieces, ["\n"]):
        if not open_line and piece.isspace():
            blank += piece.count("\n")
            continue
        first, *others = piece.split("\n")
        open_line.append(first)
        for other in others:
            line = "".join(open_line).strip()
            open_line = [other]
            if not line:
                blank += 1
                continue
            yield blank if has_begun else 0, line
            blank, has_begun = 0, True
        if len(open_line) == 1 and not open_line[0].strip():
            open_line = []


def _tokens(stdout: bytes, want: str) -> bool:
    return _exact(stdout, want) or _agree(_words(_decoded(stdout)), _words(_pieces(want)), operator.eq)


def _lines(stdout: bytes, want: str) -> bool:
    got, wanted = _stripped_lines(_decoded(stdout)), _stripped_lines(_pieces(want))
    return _exact(stdout, want) or _agree(got, wanted, operator.eq)


def _exact(stdout: bytes, want: str) -> bool:
    return stdout == want.encode("utf-8")


def _agree(got: Iterator[_Part], want: Iterator[_Part], same: Callable[[_Part, _Part], bool]) -> bool:
    """Whether there are as many of both and each pair is the same; the first that is not ends it."""
    return all(None not in (one, other) and same(one, other) for one, other in zip_longest(got, want))


class _Numbers:
    """Compares token by token, numbers within a tolerance."""

    def __init__(self, tolerance: float, *, exact_integers: bool) -> None:
        self._tolerance = tolerance
        self._exact_integers = exact_integers

    def __call__(self, stdout: bytes, want: str) -> bool:
        return _agree(_words(_decoded(stdout)), _words(_pieces(want)), self._same)

    def _same(self, got: str, want: str) -> bool:
        if got == want:
            return True
        if max(len(got), len(want)) > _MAX_DIGITS or not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(want)):
            return False
        if self._exact_integers and not set(want) & set(".eE"):
            return Decimal(got) == Decimal(want)
        x, y = float(got), float(want)
        return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= self._tolerance * max(1.0, abs(y))
