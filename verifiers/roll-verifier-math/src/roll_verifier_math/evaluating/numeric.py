"""High-precision evaluation with mpmath, at fixed points that depend only on the symbols' names.

mpmath keeps caches that threads may not fill at the same time, hence the lock; its global context is not used.
"""

from __future__ import annotations

import functools
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from roll_verifier_math.bounds import OutOfWorkError, TooCostlyError, current_meter, spend
from roll_verifier_math.evaluating.functions import OPERATIONS, NoValueError, abstract
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.nodes import App, Node, Num, Sym, walk

DIGITS = 100
"""Decimal digits carried."""
AGREE = 80
"""Decimal digits two values must share to count as equal."""
MOST_DIGITS = 1_200
_SPREAD_BITS = 66
"""Where the parts of a formula differ more in size than this many bits, more digits are carried."""
_KINKS = frozenset(
    {
        "abs",
        "max",
        "min",
        "floor",
        "ceil",
        "root",
        "gcd",
        "lcm",
        *(name for name in OPERATIONS if name.startswith("arc")),
    }
)
_SATURATING = frozenset({"tanh", "coth"})
"""They come closer to 1 than the sizes of their parts tell."""
_SCALES = (Fraction(1, 10**9), Fraction(1, 1000), Fraction(1000), Fraction(10**6), Fraction(10**9), Fraction(10**12))
_MOST_CONSTANTS = 6

Point = Mapping[str, Fraction]
NOWHERE: Point = {}
"""The point for trees without symbols."""


class _Engine:
    """The mpmath context and its lock."""

    lock: threading.RLock
    context: Any

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget both; called in a forked child too, since the lock may have been held at the fork."""
        self.lock = threading.RLock()
        self.context = None

    def ready(self) -> Any:
        """The context, made on first use."""
        if self.context is None:
            from mpmath.ctx_mp import MPContext

            self.context = MPContext()
        return self.context


_engine = _Engine()
os.register_at_fork(after_in_child=_engine.reset)


@functools.lru_cache(maxsize=256)
def points(names: frozenset[str], count: int) -> tuple[Point, ...]:
    """`count` assignments of rational values; both signs occur, and no two symbols get related values."""
    return tuple({name: _coordinate(name, index) for name in sorted(names)} for index in range(count))


def far_points(names: frozenset[str], *nodes: Node) -> list[Point]:
    """Points at other scales, at whole numbers and at the constants of the trees, where kinks may show."""
    constants = sorted({abs(n.value) for node in nodes for n in walk(node) if isinstance(n, Num)}, reverse=True)
    values = [Fraction(n) for n in (-2, -1, 0, 1, 2, 3, 10)]
    values += [sign * scale for scale in _SCALES for sign in (1, -1)]
    for constant in constants[:_MOST_CONSTANTS]:
        values += [constant, -constant, constant + Fraction(1, 3), -constant - Fraction(1, 3), 2 * constant + 1]
    found: list[Point] = [dict.fromkeys(names, value) for value in dict.fromkeys(values)]
    if len(names) > 1:
        for index, name in enumerate(sorted(names)):
            for scale in _SCALES:
                near = {other: _coordinate(other, index) for other in names}
                found += [{**near, name: scale}, {**near, name: -scale}]
    return found


def has_kinks(node: Node) -> bool:
    """Whether a tree may be made of pieces that differ, as with absolute values and roots."""
    return any(
        isinstance(n, App)
        and (n.op in _KINKS or (n.op == "pow" and (power := exact(n.args[1])) is not None and power.denominator > 1))
        for n in walk(node)
    )


def _coordinate(name: str, index: int) -> Fraction:
    digest = zlib.crc32(f"{name}/{index}".encode())
    sign = -1 if index % 3 == 2 and digest & 1 else 1
    return sign * Fraction(digest % 99_991 + 10_007, 49_999)


def evaluate(node: Node, env: Point, digits: int = DIGITS) -> Any:
    """The value of `node` as an mpmath number, at `digits` decimal digits.

    Raises:
        NoValueError: undefined there, or it holds an operation without a numeric meaning.
        TooCostlyError: an intermediate value is beyond the limits.
    """
    cache = current_meter().values
    key = (id(node), id(env), digits)
    if key not in cache:
        with _engine.lock:
            cache[key] = (_computed(node, env, digits, None), node, env)
    return cache[key][0]


def _computed(node: Node, env: Point, digits: int, sizes: list[int] | None) -> Any:
    mp = _engine.ready()
    mp.dps = digits + 10
    try:
        value = +_value(mp, node, env, sizes)
    except (ZeroDivisionError, ValueError, TypeError, OverflowError) as error:
        raise NoValueError(str(error)) from error
    if not mp.isfinite(value):
        raise NoValueError("infinite")
    return value


def agree_at(left: Node, right: Node, env: Point, digits: int = DIGITS) -> bool:
    """Whether two trees have equal values at a point, to `AGREE` of every `DIGITS` digits carried.

    Where both values are tiny, they are zero if and only if they shrink with more digits (what cancellation leaves
    does, a true value does not).

    Raises:
        NoValueError: one of them has no value there.
        TooCostlyError: an intermediate value is beyond the limits.
    """
    one, two = evaluate(left, env, digits), evaluate(right, env, digits)
    with _engine.lock:
        mp = _engine.ready()
        mp.dps = digits + 10
        small = mp.mpf(10) ** (-digits * AGREE // DIGITS)
        largest = max(abs(one), abs(two))
        if abs(one - two) <= largest * small:
            return True
        if largest > small:
            return False
        return all(_is_noise(mp, node, value, env, digits) for node, value in ((left, one), (right, two)))


def _is_noise(mp: Any, node: Node, value: Any, env: Point, digits: int) -> bool:
    if value == 0:
        return True
    better = evaluate(node, env, 2 * digits)
    mp.dps = digits + 10
    return bool(abs(better) < abs(value) * mp.mpf(10) ** (-digits // 2))


def needed_digits(node: Node, env: Point) -> int:
    """Digits to carry so that the smallest part of a tree still shows beside the largest one.

    Raises:
        NoValueError: as `evaluate`.
        TooCostlyError: as `evaluate`, or more than `MOST_DIGITS` were needed.
    """
    sizes: list[int] = []
    with _engine.lock:
        _computed(node, env, DIGITS, sizes)
    spread = max(sizes) - min(sizes) if sizes else 0
    if spread <= _SPREAD_BITS:
        return DIGITS
    digits = 2 * (DIGITS + int(spread * 0.302))
    if digits > MOST_DIGITS:
        raise TooCostlyError("parts of very different sizes")
    return digits


def agree_or_none(left: Node, right: Node, env: Point, digits: int = DIGITS) -> bool | None:
    """Like `agree_at`; None where one side has no value, or only a very large one."""
    try:
        return agree_at(left, right, env, digits)
    except OutOfWorkError:
        raise
    except (NoValueError, TooCostlyError):
        return None


def ratio_at(left: Node, right: Node, env: Point) -> Any:
    """The quotient of two values at a point.

    Raises:
        NoValueError: there is none.
        TooCostlyError: an intermediate value is beyond the limits.
    """
    one, two = evaluate(left, env), evaluate(right, env)
    if two == 0:
        raise NoValueError("a division by zero")
    with _engine.lock:
        _engine.ready().dps = DIGITS + 10
        return one / two


def are_close(values: Sequence[Any]) -> bool:
    """Whether values from one kind of point are all equal, to two thirds of the digits carried."""
    with _engine.lock:
        mp = _engine.ready()
        mp.dps = DIGITS + 10
        first = values[0]
        return all(abs(value - first) <= abs(first) * mp.mpf(10) ** (-2 * DIGITS // 3) for value in values)


def real_value(node: Node) -> Any:
    """The value of a constant tree.

    Raises:
        NoValueError: it has none, or it is not real.
    """
    value = evaluate(node, NOWHERE)
    if getattr(value, "imag", 0) != 0:
        raise NoValueError("not real")
    return value.real if hasattr(value, "real") else value


def _value(mp: Any, node: Node, env: Point, sizes: list[int] | None) -> Any:
    if isinstance(node, Num):
        spend(1)
        value = mp.mpf(node.value.numerator) / node.value.denominator
    elif isinstance(node, Sym):
        value = _constant(mp, node.name, env)
    elif isinstance(node, App):
        value = _operation(mp, node, env, sizes)
    else:
        raise NoValueError("no expression")
    if sizes is not None and value != 0:
        sizes.append(int(mp.mag(value)))
        if isinstance(node, App) and node.op in _SATURATING:
            sizes.append(-int(2.9 * abs(mp.re(_value(mp, node.args[0], env, None)))))
    return value


def _constant(mp: Any, name: str, env: Point) -> Any:
    spend(1)
    if name in env:
        return mp.mpf(env[name].numerator) / env[name].denominator
    if name == "i":
        return mp.mpc(0, 1)
    if name not in ("pi", "e"):
        raise NoValueError(f"symbol {name}")
    return +(mp.pi if name == "pi" else mp.e)


def _operation(mp: Any, node: App, env: Point, sizes: list[int] | None) -> Any:
    arguments = [_value(mp, argument, env, sizes) for argument in node.args]
    if node.op.startswith("call:"):
        return abstract(mp, node.op, arguments)
    if node.op == "pow" and arguments[0] != 0 and mp.im(arguments[0]) == 0 and mp.re(arguments[0]) < 0:
        exponent = exact(node.args[1])
        if exponent is not None and exponent.denominator > 1 and exponent.denominator % 2:
            sign = -1 if exponent.numerator % 2 else 1  # the real root, as with \sqrt[3]{-8}
            return sign * OPERATIONS["pow"](mp, -arguments[0], arguments[1])
    operation = OPERATIONS.get(node.op)
    if operation is None:
        raise NoValueError(f"operation {node.op}")
    return operation(mp, *arguments)
