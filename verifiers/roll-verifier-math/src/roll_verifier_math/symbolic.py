"""Proof by sympy, built from our tree: sympy never sees the text, so none of it is evaluated as code."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.nodes import App, Node, Num, Sym, walk

_MAX_NODES = 60
_MAX_TERMS = 500


def proved_equal(left: Node, right: Node) -> bool:
    """Whether expanding the difference of two small trees gives zero. False means: not proved.

    Functions without a meaning (`f(x)`) are kept as functions of their arguments.
    """
    if not (_is_small(left) and _is_small(right)):
        return False
    import sympy

    try:
        difference = _build(sympy, left) - _build(sympy, right)
    except RefusedError:
        return False
    return bool(difference == 0 or sympy.expand(difference) == 0)


def _is_small(node: Node) -> bool:
    return sum(1 for _ in walk(node)) <= _MAX_NODES and _terms(node) <= _MAX_TERMS


def _terms(node: Node) -> int:  # noqa: PLR0911 - one line a form
    """An upper bound of the terms after expansion."""
    match node:
        case App("add", args):
            return sum(map(_terms, args))
        case App("mul" | "div", args):
            return math.prod(map(_terms, args))
        case App("pow", (base, exponent)):
            count = _terms(base)
            if count == 1 or not isinstance(exponent, Num):
                return count * _terms(exponent)
            if exponent.value > _MAX_TERMS:
                return _MAX_TERMS + 1
            n = max(math.ceil(exponent.value), 1)
            return math.comb(count + n - 1, n)
        case App(_, args):
            return max(map(_terms, args), default=1)
        case _:
            return 1


def _build(sp: Any, node: Node) -> Any:  # noqa: PLR0911 - one line a form
    match node:
        case Num(value):
            return sp.Rational(value.numerator, value.denominator)
        case Sym(name):
            constants = {"pi": sp.pi, "e": sp.E, "i": sp.I}
            return constants[name] if name in constants else sp.Symbol(name, real=True)
        case App("add", args):
            return sp.Add(*(_build(sp, a) for a in args))
        case App("mul", args):
            return reduce(lambda a, b: a * b, (_build(sp, a) for a in args))
        case App("neg", (a,)):
            return -_build(sp, a)
        case App("div", (a, b)):
            return _build(sp, a) / _build(sp, b)
        case App("pow", (a, b)):
            return sp.Pow(_build(sp, a), _build(sp, b))
        case App("root", (a, b)):
            return sp.Pow(_build(sp, a), 1 / _build(sp, b))
        case App(op, args) if op.startswith("call:"):
            return sp.Function(op)(*(_build(sp, a) for a in args))
        case _:
            raise RefusedError("no sympy form")
