"""What set of real numbers a tree stands for: intervals, unions, inequalities in one unknown."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from fractions import Fraction

from roll_verifier_math.bounds import OutOfWorkError, RefusedError
from roll_verifier_math.comparing.pieces import (
    EVERYTHING,
    FLIP,
    INFINITY,
    Bound,
    Piece,
    combined,
    half_line,
    is_negative,
    merged,
)
from roll_verifier_math.evaluating.algebra import form_of
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.reading.build import negative
from roll_verifier_math.reading.nodes import App, Group, Listing, Node, Num, Quantity, Relation, Sym, symbols, walk
from roll_verifier_math.reading.shapes import excludes


def region(node: Node) -> tuple[Piece, ...] | None:
    """The set a tree stands for, as disjoint pieces in order; None when it stands for no set of real numbers."""
    try:
        pieces = _pieces(node)
        if pieces is None:
            return None
        for bound in itertools.chain.from_iterable(pieces):
            bound.check()
        return merged(pieces)
    except OutOfWorkError:
        raise
    except (NoValueError, RefusedError):
        return None


def as_interval(node: Node) -> Group | None:
    """`a < x <= b` or `x < a` with a symbolic end, as the interval it says."""
    if isinstance(node, Relation) and len(node.ops) == 1 and node.ops[0] in FLIP and isinstance(node.parts[0], Sym):
        is_above = node.ops[0] in (">", ">=")
        is_closed = node.ops[0] in ("<=", ">=")
        ends = (node.parts[1], INFINITY) if is_above else (negative(INFINITY), node.parts[1])
        return Group("[" if is_above and is_closed else "(", "]" if is_closed and not is_above else ")", ends)
    if not isinstance(node, Relation) or len(node.ops) != 2 or not isinstance(node.parts[1], Sym):
        return None
    low, middle, high = node.parts
    ops = node.ops
    if set(ops) <= {">", ">="}:
        low, high, ops = high, low, (FLIP[ops[1]], FLIP[ops[0]])
    if not set(ops) <= {"<", "<="} or middle in (*walk(low), *walk(high)):
        return None
    return Group("(" if ops[0] == "<" else "[", ")" if ops[1] == "<" else "]", (low, high))


def _pieces(node: Node) -> list[Piece] | None:  # noqa: PLR0911 - one line a form
    match node:
        case Group(opening, closing, (low, high)) if opening in "([":
            return [(Bound(low, 0 if opening == "[" else 1), Bound(high, 0 if closing == "]" else -1))]
        case Group("{", "}", items):
            return [(Bound(item, 0), Bound(item, 0)) for item in items]
        case Sym("emptyset"):
            return []
        case Sym("mathbb R"):
            return EVERYTHING
        case App("cup" | "cap" | "setminus" as op, (left, right)):
            return combined(op, _pieces(left), _pieces(right))
        case Listing(items, joint) if joint != "," or excludes(items):
            op = "cup" if joint == "or" else "cap"
            return functools.reduce(lambda a, b: combined(op, a, b), [_pieces(item) for item in items])
        case Relation(parts, ops):
            return _of_relation(parts, ops)
        case _:
            return None


def _of_relation(parts: Sequence[Node], ops: Sequence[str]) -> list[Piece] | None:
    if ops == ("in",):
        return _pieces(parts[1]) if isinstance(parts[0], Sym) else None
    if any(isinstance(n, Quantity) for part in parts for n in walk(part)):
        return None
    result: list[Piece] | None = EVERYTHING
    unknowns: set[Node] = set()
    for left, right, op in zip(parts, parts[1:], ops, strict=False):
        if not symbols(left) and symbols(right) and op in FLIP:
            left, right, op = right, left, FLIP[op]  # noqa: PLW2901 - the same relation, unknown first
        if symbols(right) or op not in (*FLIP, "!="):
            return None
        solved = _solve(left, right, op)
        if solved is None:
            return None
        unknowns.add(solved[0])
        result = combined("cap", result, solved[1])
    return result if len(unknowns) == 1 else None


def _solve(left: Node, right: Node, op: str) -> tuple[Node, list[Piece]] | None:
    """The unknown and the solutions of `left op right`, where `right` is constant."""
    if isinstance(left, Sym) or (isinstance(left, App) and left.op.startswith("call:")):
        return left, half_line(right, op)
    if isinstance(left, App) and left.op == "abs" and op in FLIP:
        return _solve_absolute(left.args[0], right, op)
    names = symbols(left)
    if len(names) != 1:
        return None
    name = next(iter(names))
    found = _coefficients(left, right, name)
    if found is None:
        return None
    a, b, c = found
    pieces = (
        _quadratic(a, b, c, op) if a else [] if not b else half_line(Num(-c / b), op if b > 0 else FLIP.get(op, op))
    )
    return (Sym(name), pieces) if (a or b) and pieces is not None else None


def _solve_absolute(inner: Node, right: Node, op: str) -> tuple[Node, list[Piece]] | None:
    if is_negative(right):
        return None
    one, two = _solve(inner, right, op), _solve(inner, negative(right), FLIP[op])
    if one is None or two is None:
        return None
    both = combined("cap" if op in ("<", "<=") else "cup", one[1], two[1])
    return None if both is None else (one[0], both)


def _coefficients(left: Node, right: Node, name: str) -> tuple[Fraction, Fraction, Fraction] | None:
    """a, b, c of `left - right = a x^2 + b x + c`; None when it is no such polynomial over the rationals."""
    form = form_of(App("add", (left, negative(right))))
    if form is None or form.bottom != {(): Fraction(1)}:
        return None
    found = [Fraction(0)] * 3
    for monomial, count in form.top.items():
        powers = dict(monomial)
        power = powers.pop(name, Fraction(0))
        if powers or power not in (0, 1, 2):
            return None
        found[int(power)] = count
    return found[2], found[1], found[0]


def _quadratic(a: Fraction, b: Fraction, c: Fraction, op: str) -> list[Piece] | None:
    discriminant = b * b - 4 * a * c
    if op not in FLIP or discriminant <= 0:
        return None
    root = App("root", (Num(discriminant / (4 * a * a)), Num(Fraction(2))))
    middle = Num(-b / (2 * a))
    low, high = App("add", (middle, negative(root))), App("add", (middle, root))
    is_between = (op in ("<", "<=")) == (a > 0)
    strict = op in ("<", ">")
    if is_between:
        return [(Bound(low, 1 if strict else 0), Bound(high, -1 if strict else 0))]
    return [*half_line(low, "<" if strict else "<="), *half_line(high, ">" if strict else ">=")]
