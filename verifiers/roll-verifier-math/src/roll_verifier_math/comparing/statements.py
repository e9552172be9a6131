"""Comparison of statements modulo a number, ratios, times, orders of growth."""

from __future__ import annotations

from collections.abc import Callable

from roll_verifier_math.comparing.items import in_order
from roll_verifier_math.comparing.outcome import NUMERIC, Outcome
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.evaluating.numeric import are_close, points, ratio_at
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.dates import as_time
from roll_verifier_math.reading.nodes import App, Moment, Node, Num, Relation, symbols

Compare = Callable[[Node, Node], Outcome]

_POINTS = 5
_NO = Outcome(False, "structure")


def compare_modular(gold: Node, answer: Node, compare: Compare) -> Outcome:
    """Compare residue classes: the same modulus, the same subject where both name one, residues of one class."""
    one, two = _modular_parts(gold), _modular_parts(answer)
    if one is None or two is None or one[1] != two[1]:
        return Outcome(False, "modular")
    (subject, modulus, residue), (other_subject, _, other) = one, two
    if subject is not None and other_subject is not None and subject != other_subject:
        return Outcome(False, "modular")
    size, values = exact(modulus), (exact(residue), exact(other))
    if not size or values[0] is None or values[1] is None:
        return compare(residue, other)
    return Outcome((values[0] - values[1]) % size == 0, "modular")


def _modular_parts(node: Node) -> tuple[Node | None, Node, Node] | None:
    """What a statement is about, if it says so, its modulus, and the residue."""
    if not isinstance(node, App) or node.op != "modulo":
        return None
    said, modulus = node.args
    if isinstance(said, Relation):
        return (said.parts[0], modulus, said.parts[1]) if said.ops in (("=",), ("==",)) else None
    return None, modulus, said


def compare_moments(gold: Node, answer: Node) -> Outcome:
    """Compare dates and times of day, as far as they are given."""
    one, two = _as_moment(gold), _as_moment(answer)
    return Outcome(one is not None and one == two, "date")


def _as_moment(node: Node) -> Moment | None:
    if isinstance(node, Moment):
        return node
    if isinstance(node, App) and node.op == "clock":
        hour, minute = (str(int(n.value)) for n in node.args if isinstance(n, Num))
        return as_time(hour, minute.zfill(2))
    return None


def compare_clocks(gold: Node, answer: Node) -> Outcome:
    """Compare hours and minutes; nothing else is equal to them."""
    return Outcome(gold == answer, "date")


def compare_ratios(gold: Node, answer: Node, compare: Compare) -> Outcome:
    """Compare `a : b : c` term by term, or as proportional numbers."""
    one, two = _ratio_parts(gold), _ratio_parts(answer)
    if one is None or two is None or len(one) != len(two):
        return _NO
    if (outcome := in_order(one, two, compare)).is_equal:
        return outcome
    values = [exact(part) for part in (*one, *two)]
    known = [value for value in values if value]
    if len(known) < len(values):
        return _NO
    return Outcome(len({a / b for a, b in zip(known[: len(one)], known[len(one) :], strict=True)}) == 1, "exact")


def _ratio_parts(node: Node) -> tuple[Node, ...] | None:
    """Terms of `a : b`; of a fraction too."""
    if isinstance(node, App) and node.op in ("ratio", "clock", "div"):
        return node.args
    return None


def compare_growth(gold: Node, answer: Node, compare: Compare) -> Outcome:
    """Compare orders of growth: `O(n)` and `O(2n)` are the same."""
    if not (isinstance(gold, App) and isinstance(answer, App) and gold.op == answer.op):
        return _NO
    outcome = in_order(gold.args, answer.args, compare)
    if outcome.is_equal or len(gold.args) != 1 or len(answer.args) != 1:
        return outcome
    one, two = gold.args[0], answer.args[0]
    ratios = []
    for env in points(symbols(one) | symbols(two), _POINTS):
        try:
            ratios.append(ratio_at(one, two, env))
        except NoValueError:
            return _NO
    return Outcome(bool(ratios) and ratios[0] != 0 and are_close(ratios), NUMERIC)
