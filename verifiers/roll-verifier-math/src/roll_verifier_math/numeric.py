"""High-precision evaluation with mpmath, at fixed points that depend only on the symbols' names."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from roll_verifier_math.bounds import MAX_BITS, TooCostlyError
from roll_verifier_math.nodes import App, Node, Num, Sym

DIGITS = 100
"""Decimal digits carried."""
AGREE = 80
"""Decimal digits two values must share to count as equal."""
_LARGEST_EXPONENT = 100_000
_LARGEST_ARGUMENT = 2_000
"""Bits before the point of what goes into a periodic function or is rounded."""


class NoValueError(Exception):
    """A tree has no value at a point, or an operation in it is not known here."""


def points(names: frozenset[str], count: int) -> list[dict[str, Fraction]]:
    """`count` assignments of rational values; both signs occur, and no two symbols get related values."""
    return [{name: _coordinate(name, index) for name in sorted(names)} for index in range(count)]


def _coordinate(name: str, index: int) -> Fraction:
    digest = zlib.crc32(f"{name}/{index}".encode())
    sign = -1 if index % 3 == 2 and digest & 1 else 1
    return sign * Fraction(digest % 99_991 + 10_007, 49_999)


def evaluate(node: Node, env: Mapping[str, Fraction], digits: int = DIGITS) -> Any:
    """The value of `node` as an mpmath number, at `digits` decimal digits.

    Raises:
        NoValueError: undefined there, or it holds an operation without a numeric meaning.
        TooCostlyError: an intermediate value is beyond the limits.
    """
    import mpmath

    with mpmath.workdps(digits + 10):
        try:
            value = +_value(mpmath, node, env)
        except (ZeroDivisionError, ValueError, TypeError, OverflowError) as error:
            raise NoValueError(str(error)) from error
        if not mpmath.isfinite(value):
            raise NoValueError("infinite")
        return value


def agree_at(left: Node, right: Node, env: Mapping[str, Fraction]) -> bool:
    """Whether two trees have equal values at a point, to `AGREE` digits.

    Where both values are tiny, they are zero if and only if they shrink with more digits (what cancellation leaves
    does, a true value does not).

    Raises:
        NoValueError: one of them has no value there.
        TooCostlyError: an intermediate value is beyond the limits.
    """
    import mpmath

    values = evaluate(left, env), evaluate(right, env)
    with mpmath.workdps(DIGITS + 10):
        if abs(values[0] - values[1]) <= max(map(abs, values)) * mpmath.mpf(10) ** -AGREE:
            return True
        if max(map(abs, values)) > mpmath.mpf(10) ** -AGREE:
            return False
        return all(_is_noise(mpmath, node, value, env) for node, value in zip((left, right), values, strict=True))


def _is_noise(mp: Any, node: Node, value: Any, env: Mapping[str, Fraction]) -> bool:
    return bool(value == 0 or abs(evaluate(node, env, 2 * DIGITS)) < abs(value) * mp.mpf(10) ** (-DIGITS // 2))


def _value(mp: Any, node: Node, env: Mapping[str, Fraction]) -> Any:
    match node:
        case Num(value):
            return mp.mpf(value.numerator) / value.denominator
        case Sym(name):
            if name in env:
                return mp.mpf(env[name].numerator) / env[name].denominator
            constants = {"pi": mp.pi, "e": mp.e, "i": mp.mpc(0, 1)}
            if name not in constants:
                raise NoValueError(f"symbol {name}")
            return +constants[name]
        case App(op, args):
            operation = _OPERATIONS.get(op)
            if operation is None:
                raise NoValueError(f"operation {op}")
            return operation(mp, *(_value(mp, argument, env) for argument in args))
        case _:
            raise NoValueError("no expression")


def _power(mp: Any, base: Any, exponent: Any) -> Any:
    if base != 0 and abs(exponent) * max(abs(mp.log(abs(base), 2)), 1) > _LARGEST_EXPONENT:
        raise TooCostlyError("a large power")
    return mp.power(base, exponent)


def _root(mp: Any, value: Any, degree: Any) -> Any:
    if mp.im(value) == 0 and mp.re(value) < 0 and degree == mp.floor(mp.re(degree)) and int(mp.re(degree)) % 2:
        return -mp.power(-value, 1 / degree)
    return mp.power(value, 1 / degree)


def _exp(mp: Any, value: Any) -> Any:
    if abs(value) > _LARGEST_EXPONENT:
        raise TooCostlyError("a large power")
    return mp.exp(value)


def _cis(mp: Any, value: Any) -> Any:
    return _call("cos", mp, value) + mp.mpc(0, 1) * _call("sin", mp, value)


def _factorial(mp: Any, value: Any) -> Any:
    if abs(value) > 10_000:
        raise TooCostlyError("a large factorial")
    return mp.factorial(value)


def _binomial(mp: Any, n: Any, k: Any) -> Any:
    if max(abs(n), abs(k)) > MAX_BITS:
        raise TooCostlyError("a large binomial")
    return mp.binomial(n, k)


def _total(mp: Any, *values: Any) -> Any:
    return mp.fsum(values)


def _call(name: str, mp: Any, value: Any) -> Any:
    if value != 0 and mp.mag(value) > (_LARGEST_ARGUMENT if name not in ("sinh", "cosh", "tanh") else 17):
        raise TooCostlyError("a large argument")
    return getattr(mp, name)(value)


def _real(name: str) -> Callable[..., Any]:
    def choose(mp: Any, *values: Any) -> Any:
        if any(mp.im(value) != 0 for value in values):
            raise NoValueError("not real")
        return (max if name == "max" else min)(mp.re(value) for value in values)

    return choose


_PLAIN = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "floor", "ceil")
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_call, name) for name in _PLAIN},
    "add": _total,
    "mul": lambda mp, *values: mp.fprod(values),
    "neg": lambda _, value: -value,
    "div": lambda _, top, bottom: top / bottom,
    "pow": _power,
    "root": _root,
    "deg": lambda mp, value: value * mp.pi / 180,
    "abs": lambda _, value: abs(value),
    "factorial": _factorial,
    "binom": _binomial,
    "exp": _exp,
    "ln": lambda mp, value: mp.log(value),
    "log": lambda mp, value: mp.log(value),
    "lg": lambda mp, value: mp.log(value, 10),
    "log_base": lambda mp, value, base: mp.log(value) / mp.log(base),
    "cis": _cis,
    "max": _real("max"),
    "min": _real("min"),
    "arcsin": lambda mp, value: mp.asin(value),
    "arccos": lambda mp, value: mp.acos(value),
    "arctan": lambda mp, value: mp.atan(value),
}
