"""What the operations of a tree mean for mpmath numbers, within limits on their arguments."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from roll_verifier_math.bounds import MAX_BITS, TooCostlyError, spend

_LARGEST_EXPONENT = 100_000
_LARGEST_ARGUMENT = 2_000
"""Bits before the point of what goes into a periodic function or is rounded."""
_LARGEST_HYPERBOLIC = 17
_COST = 12
"""Work of a function that is no arithmetic."""


class NoValueError(Exception):
    """A tree has no value at a point, or an operation in it is not known here."""


def abstract(mp: Any, name: str, arguments: Sequence[Any]) -> Any:
    """A value for a function without a meaning: a number that depends on nothing but its name and arguments."""
    spend(_COST * len(arguments))
    near_zero = mp.mpf(10) ** -70
    shown = [mp.nstr(value, 50) if abs(value) > near_zero else "0" for value in arguments]
    digest = zlib.crc32("/".join((name, *shown)).encode())
    return mp.mpf(digest % 99_991 + 10_007) / 49_999


def _plain(operation: Callable[..., Any]) -> Callable[..., Any]:
    def run(mp: Any, *values: Any) -> Any:
        spend(1)
        return operation(mp, *values)

    return run


def _costly(operation: Callable[..., Any]) -> Callable[..., Any]:
    def run(mp: Any, *values: Any) -> Any:
        spend(_COST * (1 + mp.prec // 1000))
        return operation(mp, *values)

    return run


def _power(mp: Any, base: Any, exponent: Any) -> Any:
    if base != 0 and abs(exponent) * max(abs(mp.log(abs(base), 2)), 1) > _LARGEST_EXPONENT:
        raise TooCostlyError("a large power")
    return mp.power(base, exponent)


def _root(mp: Any, value: Any, degree: Any) -> Any:
    if mp.im(value) == 0 and mp.re(value) < 0 and degree == mp.floor(mp.re(degree)) and int(mp.re(degree)) % 2:
        return -mp.power(-value, 1 / degree)
    if degree == 2:
        return mp.sqrt(value)
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


def _double_factorial(mp: Any, value: Any) -> Any:
    if abs(value) > 10_000:
        raise TooCostlyError("a large factorial")
    return mp.fac2(value)


def _binomial(mp: Any, n: Any, k: Any) -> Any:
    if max(abs(n), abs(k)) > MAX_BITS:
        raise TooCostlyError("a large binomial")
    return mp.binomial(n, k)


def _call(name: str, mp: Any, value: Any) -> Any:
    limit = _LARGEST_HYPERBOLIC if name in ("sinh", "cosh", "tanh", "coth", "sech", "csch") else _LARGEST_ARGUMENT
    if value != 0 and mp.mag(value) > limit:
        raise TooCostlyError("a large argument")
    return getattr(mp, name)(value)


def _log(mp: Any, value: Any, base: Any = None) -> Any:
    if value == 0:
        raise NoValueError("the logarithm of zero")
    return mp.log(value) if base is None else mp.log(value) / mp.log(base)


def _extreme(name: str) -> Callable[..., Any]:
    def choose(mp: Any, *values: Any) -> Any:
        if any(mp.im(value) != 0 for value in values):
            raise NoValueError("not real")
        return (max if name == "max" else min)(mp.re(value) for value in values)

    return choose


_DIRECT = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch", "floor", "ceil")
_INVERSE = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")


def _inverse(name: str, mp: Any, value: Any) -> Any:
    return getattr(mp, f"a{name}")(value)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _costly(partial(_call, name)) for name in _DIRECT},
    **{f"arc{name}": _costly(partial(_inverse, name)) for name in _INVERSE},
    "add": _plain(lambda mp, *values: mp.fsum(values)),
    "mul": _plain(lambda mp, *values: mp.fprod(values)),
    "neg": _plain(lambda _, value: -value),
    "div": _plain(lambda _, top, bottom: top / bottom),
    "abs": _plain(lambda _, value: abs(value)),
    "deg": _plain(lambda mp, value: value * mp.pi / 180),
    "pow": _costly(_power),
    "root": _costly(_root),
    "factorial": _costly(_factorial),
    "factorial2": _costly(_double_factorial),
    "binom": _costly(_binomial),
    "exp": _costly(_exp),
    "ln": _costly(_log),
    "log": _costly(_log),
    "lg": _costly(lambda mp, value: _log(mp, value, mp.mpf(10))),
    "log_base": _costly(_log),
    "cis": _costly(_cis),
    "max": _plain(_extreme("max")),
    "min": _plain(_extreme("min")),
}
