"""Proof by sympy, built from our tree: sympy never sees the text, so none of it is evaluated as code."""

from __future__ import annotations

from functools import reduce
from typing import Any

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.nodes import App, Node, Num, Sym, walk

_MAX_NODES = 60
_MAX_POWER = 12


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
    nodes = list(walk(node))
    powers = [n.args[1] for n in nodes if isinstance(n, App) and n.op == "pow"]
    return len(nodes) <= _MAX_NODES and all(
        (isinstance(p, Num) and abs(p.value) <= _MAX_POWER) or not isinstance(p, Num) for p in powers
    )


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
