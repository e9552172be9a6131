"""Exact values: a tree of numbers to a fraction, never larger than the limits allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from roll_verifier_math.bounds import MAX_BITS, MAX_FACTORIAL, TooCostlyError, spend
from roll_verifier_math.reading.nodes import App, Node, Num, Sym

_FREE_BITS = 256
"""Values up to this size cost one unit of work."""


def exact(node: Node, env: Mapping[str, Fraction] | None = None) -> Fraction | None:
    """The value of a tree as a fraction; None when it has none, or none that is found without approximation.

    Args:
        node: what to evaluate.
        env: values of symbols.

    Raises:
        TooCostlyError: the value would be beyond the limits.
    """
    if isinstance(node, Num):
        return node.value
    if isinstance(node, Sym):
        return env.get(node.name) if env else None
    if not isinstance(node, App):
        return None
    values = []
    for argument in node.args:
        found = exact(argument, env)
        if found is None:
            return None
        values.append(found)
    result = _apply(node.op, values)
    return None if result is None else _bounded(result)


def _apply(op: str, values: list[Fraction]) -> Fraction | None:
    if op in _WHOLE and all(value.denominator == 1 and value >= 0 for value in values):
        return _WHOLE[op](*(int(value) for value in values))
    return _OPERATIONS[op](*values) if op in _OPERATIONS else None


def _factorial(n: int) -> Fraction:
    if n > MAX_FACTORIAL:
        raise TooCostlyError("a large factorial")
    spend(1 + n // 16)
    return Fraction(math.factorial(n))


def _double_factorial(n: int) -> Fraction:
    if n > MAX_FACTORIAL:
        raise TooCostlyError("a large factorial")
    spend(1 + n // 16)
    return Fraction(math.prod(range(n, 0, -2)))


def _binomial(n: int, k: int) -> Fraction:
    if n > MAX_FACTORIAL:
        raise TooCostlyError("a large binomial")
    spend(1 + n // 16)
    return Fraction(math.comb(n, k))


def _total(*values: Fraction) -> Fraction:
    result = Fraction(0)
    for value in values:
        result = _bounded(result + value)
    return result


def _product(*values: Fraction) -> Fraction:
    result = Fraction(1)
    for value in values:
        result = _bounded(result * value)
    return result


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None else _power(root, Fraction(exponent.numerator))
    if base == 0:
        return Fraction(0) if exponent > 0 else (Fraction(1) if exponent == 0 else None)
    if abs(base) != 1 and _bits(base) * abs(exponent) > MAX_BITS:
        raise TooCostlyError("a large power")
    return base ** (int(exponent) if abs(base) != 1 else int(exponent) % 2)


def _root(value: Fraction, degree: Fraction) -> Fraction | None:
    if degree.denominator != 1 or not 1 <= degree <= 64:
        return None
    n = int(degree)
    if value < 0:
        root = _root(-value, degree) if n % 2 else None
        return None if root is None else -root
    top, bottom = _integer_root(value.numerator, n), _integer_root(value.denominator, n)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(value: int, n: int) -> int | None:
    if n == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    low, high = 0, 1 << (value.bit_length() // n + 1)
    spend(high.bit_length() * (1 + value.bit_length() // 4096))
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**n < value else (low, middle)
    return low if low**n == value else None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    bits = _bits(value)
    if bits > MAX_BITS:
        raise TooCostlyError("a value of too many digits")
    if bits > _FREE_BITS:  # reducing a fraction takes quadratic time
        spend(1 + (bits // 1024) ** 2 // 8)
    return value


_WHOLE: dict[str, Callable[..., Fraction]] = {
    "factorial": _factorial,
    "factorial2": _double_factorial,
    "binom": _binomial,
    "gcd": lambda *values: Fraction(math.gcd(*values)),
    "lcm": lambda *values: Fraction(math.lcm(*values)),
}
"""Operations on whole numbers."""
_OPERATIONS: dict[str, Callable[..., Fraction | None]] = {
    "add": _total,
    "mul": _product,
    "neg": lambda value: -value,
    "div": lambda top, bottom: None if bottom == 0 else top / bottom,
    "pow": _power,
    "root": _root,
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
}
