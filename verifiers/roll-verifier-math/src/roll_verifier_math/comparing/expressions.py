"""Comparison of formulas: exactly, as algebra, by random evaluation, and by proof."""

from __future__ import annotations

import time

from roll_verifier_math.bounds import current_meter
from roll_verifier_math.comparing.outcome import NUMERIC, Outcome
from roll_verifier_math.evaluating.algebra import form_of, same_value
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.evaluating.numeric import (
    DIGITS,
    NOWHERE,
    Point,
    agree_at,
    agree_or_none,
    evaluate,
    far_points,
    has_kinks,
    needed_digits,
    points,
)
from roll_verifier_math.evaluating.prover import PROVER
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.nodes import App, Node, Num, Sym, rebuild, symbols, walk

_POINTS = 6
_NEEDED = 3
"""Points at which both sides must have a value before agreement counts."""


def compare_expressions(gold: Node, answer: Node) -> Outcome:
    """Compare two formulas in numbers and symbols.

    Raises:
        TooCostlyError: the values would be beyond the limits.
    """
    if gold == answer:
        return Outcome(True, "structure")
    one, two = exact(gold), exact(answer)
    if one is not None and two is not None:
        return Outcome(one == two, "exact")
    gold, answer = _same_calls(gold, answer)
    if (found := same_value(gold, answer)) is not None:
        return Outcome(found, "symbolic")
    if not _agree_everywhere(gold, answer):
        return Outcome(False, NUMERIC)
    return Outcome(True, "symbolic" if proved(gold, answer) else NUMERIC)


def is_evaluable(node: Node) -> bool:
    """Whether a formula has a value, exactly or at one point.

    Raises:
        TooCostlyError: it would be beyond the limits.
    """
    if exact(node) is not None:
        return True
    try:
        evaluate(node, points(symbols(node), 1)[0])
    except NoValueError:
        return False
    return True


def proved(left: Node, right: Node) -> bool:
    """Whether the prover shows that two trees are equal in what is left of this comparison's time."""
    meter = current_meter()
    started = time.monotonic()
    try:
        return PROVER.prove(left, right, meter.proof_seconds)
    finally:
        meter.proof_seconds -= time.monotonic() - started


def difference_is_constant(left: Node, right: Node) -> bool:
    """Whether two formulas differ by a number only."""
    names = symbols(left) | symbols(right)
    difference = App("add", (left, App("neg", (right,))))
    algebra = form_of(difference)
    if algebra is not None and algebra.is_free:
        units = {unit for part in (algebra.top, algebra.bottom) for monomial in part for unit, _ in monomial}
        return not units & names
    first, *others = points(names, _POINTS)
    base = _at(difference, first)
    found = [agree_or_none(difference, base, env) for env in others]
    return False not in found and found.count(True) >= _NEEDED


def _at(node: Node, env: Point) -> Node:
    """The tree with rational values for its symbols."""

    def put(inner: Node) -> Node:
        if isinstance(inner, Sym) and inner.name in env:
            return Num(env[inner.name])
        return rebuild(inner, put)

    return put(node)


def _agree_everywhere(gold: Node, answer: Node) -> bool:
    """Whether the values agree at every point where both have one, and there are enough such points."""
    names = symbols(gold) | symbols(answer)
    if not names:
        return _agree_constant(gold, answer)
    agreed = 0
    for env in points(names, _POINTS):
        try:
            if not agree_at(gold, answer, env):
                return False
        except NoValueError:
            continue
        agreed += 1
    if agreed < _NEEDED:
        return False
    return _agree_closely(gold, answer, names) and _agree_far_out(gold, answer, names)


def _agree_constant(gold: Node, answer: Node) -> bool:
    try:
        return agree_at(gold, answer, NOWHERE, max(needed_digits(n, NOWHERE) for n in (gold, answer)))
    except NoValueError:
        return False


def _agree_closely(gold: Node, answer: Node, names: frozenset[str]) -> bool:
    """Whether the values still agree with enough digits for the smallest part of either side."""
    for env in points(names, _POINTS):
        try:
            digits = max(needed_digits(node, env) for node in (gold, answer))
        except NoValueError:
            continue
        return digits == DIGITS or agree_or_none(gold, answer, env, digits) is not False
    return True


def _agree_far_out(gold: Node, answer: Node, names: frozenset[str]) -> bool:
    if not (has_kinks(gold) or has_kinks(answer)):
        return True
    return all(agree_or_none(gold, answer, env) is not False for env in far_points(names, gold, answer))


def _same_calls(gold: Node, answer: Node) -> tuple[Node, Node]:
    """Read `h(a + b)` as a product on one side when the other side has the height `h` itself."""
    return _with_products(gold, symbols(answer)), _with_products(answer, symbols(gold))


def _with_products(node: Node, names: frozenset[str]) -> Node:
    if "h" not in names or not any(isinstance(n, App) and n.op == "call:h" for n in walk(node)):
        return node

    def change(inner: Node) -> Node:
        inner = rebuild(inner, change)
        if isinstance(inner, App) and inner.op == "call:h" and "h" in names and isinstance(inner.args[0], App):
            return App("mul", (Sym("h"), *inner.args))
        return inner

    return change(node)
