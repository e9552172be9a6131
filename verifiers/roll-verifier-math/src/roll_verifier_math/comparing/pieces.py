"""Sets of real numbers as disjoint intervals in order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from roll_verifier_math.evaluating.numeric import NOWHERE, agree_at, real_value
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.nodes import App, Node, Sym

INFINITY = Sym("infty")
_INFINITE = {INFINITY: 1, App("neg", (INFINITY,)): -1}


@functools.total_ordering
@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """An end of an interval: a constant tree, or an infinity; `side` -1/0/1 puts it before, at or after its value."""

    node: Node
    side: int

    def check(self) -> None:
        """Refuse what cannot be ordered.

        Raises:
            NoValueError: the end is neither an infinity nor a real number.
        """
        if self.node not in _INFINITE and exact(self.node) is None:
            real_value(self.node)

    def _compare_value(self, other: Bound) -> int:
        mine, theirs = _INFINITE.get(self.node, 0), _INFINITE.get(other.node, 0)
        if mine or theirs:
            return (mine > theirs) - (mine < theirs)
        one, two = exact(self.node), exact(other.node)
        if one is not None and two is not None:
            return (one > two) - (one < two)
        if agree_at(self.node, other.node, NOWHERE):
            return 0
        return 1 if real_value(self.node) > real_value(other.node) else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.side == other.side and self._compare_value(other) == 0

    __hash__ = None  # type: ignore[assignment]  # equal bounds may be written differently

    def __lt__(self, other: Bound) -> bool:
        order = self._compare_value(other)
        return order < 0 or (order == 0 and self.side < other.side)


Piece = tuple[Bound, Bound]
LEFT = Bound(App("neg", (INFINITY,)), 1)
RIGHT = Bound(INFINITY, -1)
EVERYTHING: list[Piece] = [(LEFT, RIGHT)]
FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def half_line(bound: Node, op: str) -> list[Piece]:
    """The numbers that stand in relation `op` to `bound`."""
    if op == "!=":
        return [(LEFT, Bound(bound, -1)), (Bound(bound, 1), RIGHT)]
    if op in ("<", "<="):
        return [(LEFT, Bound(bound, -1 if op == "<" else 0))]
    return [(Bound(bound, 1 if op == ">" else 0), RIGHT)]


def combined(op: str, left: list[Piece] | None, right: list[Piece] | None) -> list[Piece] | None:
    """The union, intersection or difference of two sets; None when one of them is unknown."""
    if left is None or right is None:
        return None
    if op == "cup":
        return [*left, *right]
    if op == "setminus":
        right = _complement(merged(right))
    return [(max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right if max(a[0], b[0]) <= min(a[1], b[1])]


def merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same set with its pieces in order, disjoint, and as few as possible."""
    kept: list[Piece] = []
    for low, high in sorted(p for p in pieces if p[0] <= p[1]):
        if kept and low <= Bound(kept[-1][1].node, kept[-1][1].side + 1):
            kept[-1] = (kept[-1][0], max(kept[-1][1], high))
        else:
            kept.append((low, high))
    return tuple(kept)


def _complement(pieces: Sequence[Piece]) -> list[Piece]:
    result, start = [], LEFT
    for low, high in pieces:
        result.append((start, Bound(low.node, low.side - 1)))
        start = Bound(high.node, high.side + 1)
    result.append((start, RIGHT))
    return [(low, high) for low, high in result if low <= high]


def is_negative(node: Node) -> bool:
    """Whether a constant is below zero."""
    value = exact(node)
    return value < 0 if value is not None else bool(real_value(node) < 0)
