"""Sets of real numbers in one canonical form: intervals, unions, inequalities in one unknown."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.nodes import App, Group, Listing, Node, Num, Relation, Sym, symbols
from roll_verifier_math.numeric import NoValueError, agree_at, evaluate
from roll_verifier_math.values import exact

_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_INFINITE = {Sym("infty"): 1, App("neg", (Sym("infty"),)): -1}


@functools.total_ordering
@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """An end of an interval: a constant tree, or an infinity; `side` -1/0/1 puts it before, at or after its value."""

    node: Node
    side: int

    def _compare_value(self, other: Bound) -> int:
        mine, theirs = _INFINITE.get(self.node, 0), _INFINITE.get(other.node, 0)
        if mine or theirs:
            return (mine > theirs) - (mine < theirs)
        if agree_at(self.node, other.node, {}):
            return 0
        return 1 if _real(self.node) > _real(other.node) else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.side == other.side and self._compare_value(other) == 0

    def __lt__(self, other: Bound) -> bool:
        order = self._compare_value(other)
        return order < 0 or (order == 0 and self.side < other.side)

    def __hash__(self) -> int:
        return hash(self.side)


Piece = tuple[Bound, Bound]
_LEFT = Bound(App("neg", (Sym("infty"),)), 1)
_RIGHT = Bound(Sym("infty"), -1)


def region(node: Node) -> tuple[Piece, ...] | None:
    """The set a tree stands for, as disjoint pieces in order; None when it stands for no set of real numbers."""
    try:
        pieces = _pieces(node)
        return None if pieces is None else _merged(pieces)
    except (NoValueError, RefusedError):
        return None


def names_region(node: Node) -> bool:
    """Whether a tree can only mean a region: an inequality, a half-open interval, an operation on sets."""
    match node:
        case Relation(_, ops):
            return any(op in ("<", "<=", ">", ">=", "!=", "in") for op in ops)
        case Group(opening, closing, items):
            return len(items) == 2 and {opening, closing} in ({"(", "]"}, {"[", ")"}) and opening + closing != "[]"
        case App(op, _):
            return op in ("cup", "cap", "setminus")
        case Sym(name):
            return name in ("emptyset", "mathbb R")
        case Listing(items, joint):
            return joint != "," and all(names_region(item) for item in items)
        case _:
            return False


def _pieces(node: Node) -> list[Piece] | None:  # noqa: PLR0911 - one line a form
    match node:
        case Group(opening, closing, (low, high)) if opening != "{":
            return [(Bound(low, 0 if opening == "[" else 1), Bound(high, 0 if closing == "]" else -1))]
        case Group("{", "}", items):
            return [(Bound(item, 0), Bound(item, 0)) for item in items]
        case Sym("emptyset"):
            return []
        case Sym("mathbb R"):
            return [(_LEFT, _RIGHT)]
        case App("cup" | "cap" | "setminus" as op, (left, right)):
            return _combined(op, _pieces(left), _pieces(right))
        case Listing(items, "or" | "and" as joint):
            parts = [_pieces(item) for item in items]
            op = "cup" if joint == "or" else "cap"
            return functools.reduce(lambda a, b: _combined(op, a, b), parts)
        case Relation(parts, ops):
            return _of_relation(parts, ops)
        case _:
            return None


def _of_relation(parts: Sequence[Node], ops: Sequence[str]) -> list[Piece] | None:
    if ops == ("in",):
        return _pieces(parts[1]) if isinstance(parts[0], Sym) else None
    result: list[Piece] | None = [(_LEFT, _RIGHT)]
    unknowns: set[Node] = set()
    for left, right, op in zip(parts, parts[1:], ops, strict=False):
        if not symbols(left) and symbols(right) and op in _FLIP:
            left, right, op = right, left, _FLIP[op]  # noqa: PLW2901 - the same relation, unknown first
        if symbols(right) or op not in (*_FLIP, "!="):
            return None
        solved = _solve(left, right, op)
        if solved is None:
            return None
        unknowns.add(solved[0])
        result = _combined("cap", result, solved[1])
    return result if len(unknowns) == 1 else None


def _solve(left: Node, right: Node, op: str) -> tuple[Node, list[Piece]] | None:
    """The unknown and the solutions of `left op right`, where `right` is constant."""
    if isinstance(left, Sym) or (isinstance(left, App) and left.op.startswith("call:")):
        return left, _half_line(right, op)
    if isinstance(left, App) and left.op == "abs" and isinstance(left.args[0], Sym) and op in _FLIP:
        if _real(right) < 0:
            return None
        joint = "cap" if op in ("<", "<=") else "cup"
        both = _half_line(right, op), _half_line(App("neg", (right,)), _FLIP[op])
        return left.args[0], _combined(joint, *both) or []
    names = symbols(left)
    return _solve_linear(left, right, op, next(iter(names))) if len(names) == 1 else None


def _solve_linear(left: Node, right: Node, op: str, name: str) -> tuple[Node, list[Piece]] | None:
    offset = exact(right)
    at = [value for x in (0, 1, 2, 5) if (value := exact(left, {name: Fraction(x)})) is not None]
    if offset is None or len(at) < 4:
        return None
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[0] != 2 * slope or at[3] - at[0] != 5 * slope:
        return None
    return Sym(name), _half_line(Num((offset - at[0]) / slope), op if slope > 0 else _FLIP.get(op, op))


def _half_line(bound: Node, op: str) -> list[Piece]:
    if op == "!=":
        return [(_LEFT, Bound(bound, -1)), (Bound(bound, 1), _RIGHT)]
    if op in ("<", "<="):
        return [(_LEFT, Bound(bound, -1 if op == "<" else 0))]
    return [(Bound(bound, 1 if op == ">" else 0), _RIGHT)]


def _combined(op: str, left: list[Piece] | None, right: list[Piece] | None) -> list[Piece] | None:
    if left is None or right is None:
        return None
    if op == "cup":
        return [*left, *right]
    if op == "setminus":
        right = _complement(_merged(right))
    return [(max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right if max(a[0], b[0]) <= min(a[1], b[1])]


def _complement(pieces: Sequence[Piece]) -> list[Piece]:
    result, start = [], _LEFT
    for low, high in pieces:
        result.append((start, Bound(low.node, low.side - 1)))
        start = Bound(high.node, high.side + 1)
    result.append((start, _RIGHT))
    return [(low, high) for low, high in result if low <= high]


def _merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    merged: list[Piece] = []
    for low, high in sorted(p for p in pieces if p[0] <= p[1]):
        if merged and low <= Bound(merged[-1][1].node, merged[-1][1].side + 1):
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _real(node: Node) -> Any:
    value = evaluate(node, {})
    if getattr(value, "imag", 0) != 0:
        raise NoValueError("not real")
    return value.real if hasattr(value, "real") else value
