"""Proof by sympy, built from our tree: sympy never sees the text, so none of it is evaluated as code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.reading.nodes import App, Node, Num, Sym, walk

_MAX_NODES = 80
_MAX_TERMS = 500


def unpacked(data: Sequence[Any]) -> Node:
    """The tree that `prover.packed` made into plain data."""
    kind, first, *rest = data
    if kind == "num":
        return Num(Fraction(int(first, 16), int(rest[0], 16)))
    if kind == "sym":
        return Sym(first)
    return App(first, tuple(map(unpacked, rest)))


def proved_equal(left: Node, right: Node) -> bool:
    """Whether rewriting the difference of two small trees gives zero. False means: not proved.

    Functions without a meaning (`f(x)`) are kept as functions of their arguments.
    """
    if not (_is_small(left) and _is_small(right)):
        return False
    import sympy

    try:
        difference = _build(sympy, left) - _build(sympy, right)
    except RefusedError:
        return False
    return any(form == 0 for form in _forms(sympy, difference))


def _forms(sp: Any, difference: Any) -> Iterator[Any]:
    """The difference, rewritten ever more expensively."""
    yield difference
    expanded = sp.expand(difference)
    yield expanded
    yield sp.expand(sp.sqrtdenest(expanded))
    if difference.has(sp.log):
        yield sp.expand(sp.expand_log(expanded))
    if difference.has(sp.sin, sp.cos, sp.tan, sp.sinh, sp.cosh, sp.tanh, sp.sec, sp.csc, sp.cot):
        exponential = sp.expand(sp.powsimp(sp.expand(difference.rewrite(sp.exp))))
        yield exponential
        yield sp.expand(sp.together(exponential).as_numer_denom()[0])
    if difference.has(sp.I):
        yield sp.expand(expanded.rewrite(sp.cos))
    yield sp.radsimp(expanded)
    yield sp.simplify(difference)


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


def _build(sp: Any, node: Node) -> Any:
    if isinstance(node, Num):
        return sp.Rational(node.value.numerator, node.value.denominator)
    if isinstance(node, Sym):
        constants = {"pi": sp.pi, "e": sp.E, "i": sp.I}
        return constants[node.name] if node.name in constants else sp.Symbol(node.name, real=True)
    if not isinstance(node, App):
        raise RefusedError("no expression")
    arguments = [_build(sp, argument) for argument in node.args]
    if node.op.startswith("call:"):
        return sp.Function(node.op)(*arguments)
    rule = _RULES.get(node.op)
    if rule is None:
        raise RefusedError("no sympy form")
    return rule(sp, *arguments)


def _named(name: str) -> Callable[..., Any]:
    return lambda sp, *arguments: getattr(sp, name)(*arguments)


_RULES: dict[str, Callable[..., Any]] = {
    **{name: _named(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth")},
    **{f"arc{name}": _named(f"a{name}") for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")},
    "add": lambda sp, *terms: sp.Add(*terms),
    "mul": lambda _, *factors: reduce(lambda a, b: a * b, factors),
    "neg": lambda _, value: -value,
    "div": lambda _, top, bottom: top / bottom,
    "pow": lambda sp, base, exponent: sp.Pow(base, exponent),
    "root": lambda sp, value, degree: sp.Pow(value, 1 / degree),
    "exp": _named("exp"),
    "ln": _named("log"),
    "log": _named("log"),
    "lg": lambda sp, value: sp.log(value) / sp.log(10),
    "log_base": lambda sp, value, base: sp.log(value) / sp.log(base),
    "abs": _named("Abs"),
    "deg": lambda sp, value: value * sp.pi / 180,
    "factorial": _named("factorial"),
    "binom": _named("binomial"),
    "floor": _named("floor"),
    "ceil": _named("ceiling"),
    "cis": lambda sp, value: sp.cos(value) + sp.I * sp.sin(value),
}
