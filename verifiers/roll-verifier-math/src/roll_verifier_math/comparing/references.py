"""What only the reference's side decides."""

from __future__ import annotations

import re
from fractions import Fraction

from roll_verifier_math.bounds import RefusedError, TooCostlyError, metered
from roll_verifier_math.comparing.compare import compare
from roll_verifier_math.comparing.expressions import is_evaluable
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.evaluating.numeric import real_value
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.nodes import App, Group, Node, Num, Quantity, Relation, Sym, children
from roll_verifier_math.reading.read import read_with_unit
from roll_verifier_math.reading.shapes import names_region
from roll_verifier_math.reading.units import Unit, same_unit

FAILURES = (RefusedError, NoValueError, ArithmeticError, ValueError, RecursionError, MemoryError)
"""What a comparison may end with on text that nobody foresaw."""
_DECIMAL = re.compile(r"-?\d*\.(\d+)")


def aligned(gold: Node, answer: Node, gold_text: str, answer_text: str) -> tuple[Node, Node]:
    """Both trees; "5 m" is read as a quantity where the other side is one, `{5}` as 5 where the other is no set."""
    gold, answer = _unwrapped(gold, answer), _unwrapped(answer, gold)
    if isinstance(gold, Quantity) and not isinstance(answer, Quantity):
        return gold, read_with_unit(answer_text) or answer
    if isinstance(answer, Quantity) and not isinstance(gold, Quantity):
        return read_with_unit(gold_text) or gold, answer
    return gold, answer


def _unwrapped(node: Node, other: Node) -> Node:
    """The only item of a set, for comparison with a number."""
    if isinstance(node, Group) and node.opening == "{" and len(node.items) == 1 and isinstance(other, Num | App | Sym):
        return node if names_region(other) else node.items[0]
    return node


def is_costly(gold: Node) -> bool:
    """Whether some formula in the reference is beyond the limits by itself."""
    with metered(prove=False):
        if isinstance(gold, App | Num | Sym):
            try:
                is_evaluable(gold)
            except TooCostlyError:
                return True
            return False
    return any(map(is_costly, children(gold)))


def is_broken(gold: Node) -> bool:
    """Whether the reference fails in comparisons with the simplest answers too."""
    with metered(prove=False):
        for simple in (Num(Fraction(0)), Sym("x"), Relation((Sym("x"), Num(Fraction(0))), (">",))):
            try:
                compare(gold, simple)
            except FAILURES:
                return True
    return False


def rounds_to(text: str, gold: Node, answer: Node) -> bool:
    """Whether the answer, rounded to the digits that a decimal reference shows, is the reference."""
    match = _DECIMAL.search(text)
    if match is None:
        return False
    half = Fraction(1, 2 * 10 ** len(match[1]))
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        size = same_unit(Unit(gold.factor, gold.unit), Unit(answer.factor, answer.unit))
        if size is None:
            return False
        half *= size
        gold = Quantity(App("mul", (Num(size), gold.value)), answer.factor, answer.unit)
    one, two = (node.value if isinstance(node, Quantity) else node for node in (gold, answer))
    values = exact(one), exact(two)
    if values[0] is not None and values[1] is not None:
        return abs(values[0] - values[1]) <= half
    try:
        return bool(abs(real_value(one) - real_value(two)) * half.denominator <= half.numerator)
    except NoValueError:
        return False
