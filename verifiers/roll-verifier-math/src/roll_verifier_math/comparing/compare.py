"""Are two readings the same answer? The type of what was asked for decides how they are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roll_verifier_math.bounds import spend
from roll_verifier_math.comparing.antiderivatives import same_up_to_constant
from roll_verifier_math.comparing.expressions import compare_expressions
from roll_verifier_math.comparing.items import (
    compare_groups,
    compare_lists,
    compare_matrices,
    in_order,
    items_of,
    vector,
)
from roll_verifier_math.comparing.kinds import Kind, kind_of
from roll_verifier_math.comparing.outcome import Outcome
from roll_verifier_math.comparing.regions import as_interval, region
from roll_verifier_math.comparing.relations import compare_relations
from roll_verifier_math.comparing.statements import (
    compare_clocks,
    compare_growth,
    compare_modular,
    compare_moments,
    compare_ratios,
)
from roll_verifier_math.reading.nodes import (
    App,
    Group,
    Listing,
    Matrix,
    Moment,
    Node,
    Num,
    Numeral,
    Quantity,
    Relation,
    Sym,
    Words,
)
from roll_verifier_math.reading.shapes import carried, is_subject
from roll_verifier_math.reading.units import Unit, same_unit

_NO = Outcome(False, "structure")
_STAGES = {Words: "words", Moment: "date", Numeral: "base"}


def compare(gold: Node, answer: Node) -> Outcome:
    """Compare the reference's tree with the answer's; the order of the two does not matter.

    Raises:
        TooCostlyError: the values would be beyond the limits.
    """
    spend(2)
    if gold == answer:
        return Outcome(True, _STAGES.get(type(gold), "structure"))
    kinds = (kind_of(gold), kind_of(answer))
    kind = next(kind for kind in Kind if kind in kinds)
    if kind in _ABOVE_RELATIONS and Kind.RELATION in kinds:
        return compare_relations(gold, answer, compare)
    return _COMPARERS[kind](gold, answer)


def _compare_words(gold: Node, answer: Node) -> Outcome:
    one, two = _spelt(gold), _spelt(answer)
    return Outcome(one is not None and one == two, "words")


def _spelt(node: Node) -> str | None:
    """Words as they are, and letters that were read as a product of symbols."""
    if isinstance(node, Words):
        return node.text
    letters = node.args if isinstance(node, App) and node.op == "mul" else (node,)
    names = [letter.name for letter in letters if isinstance(letter, Sym) and len(letter.name) == 1]
    if len(names) != len(letters):
        return None
    return names[0] if len(names) == 1 else "".join(names).lower()


# --- quantities -------------------------------------------------------------------------------------------------------


def _compare_quantities(gold: Node, answer: Node) -> Outcome:
    if not (isinstance(gold, Quantity) and isinstance(answer, Quantity)):
        return compare(_bare(gold), _bare(answer))
    units = Unit(gold.factor, gold.unit), Unit(answer.factor, answer.unit)
    if {one.powers for one in units} == {(("degree", 1),), (("radian", 1),)}:
        return compare(_in_radians(gold), _in_radians(answer))
    size = same_unit(*units)
    if size is None:
        return Outcome(False, "unit")
    return compare(gold.value if size == 1 else App("mul", (Num(size), gold.value)), answer.value)


def _bare(node: Node) -> Node:
    return node.value if isinstance(node, Quantity) else node


def _in_radians(quantity: Quantity) -> Node:
    return App("deg", (quantity.value,)) if quantity.unit == (("degree", 1),) else quantity.value


# --- regions, lists, tuples, matrices ---------------------------------------------------------------------------------


def _compare_regions(gold: Node, answer: Node) -> Outcome:  # noqa: PLR0911 - one line a form
    regions = region(gold), region(answer)
    if regions[0] is not None and regions[1] is not None:
        one, two = _unknown_of(gold), _unknown_of(answer)
        return Outcome(regions[0] == regions[1] and (one is None or two is None or one == two), "region")
    if any(isinstance(node, Relation) and items_of(node) != (node,) for node in (gold, answer)):
        return compare_lists(gold, answer, compare)
    outcome = compare_relations(gold, answer, compare)
    if outcome.is_equal:
        return outcome
    intervals = as_interval(gold), as_interval(answer)
    left, right = intervals[0] or gold, intervals[1] or answer
    if isinstance(left, Group) and isinstance(right, Group):
        return compare_groups(left, right, compare)
    if isinstance(gold, App) and isinstance(answer, App) and gold.op == answer.op:
        if gold.op == "setminus":
            return in_order(gold.args, answer.args, compare)
        return compare_lists(Listing(_operands(gold, gold.op)), Listing(_operands(answer, gold.op)), compare)
    if isinstance(gold, Listing) or isinstance(answer, Listing):
        return compare_lists(_listed(gold), _listed(answer), compare)
    return _NO


def _operands(node: Node, op: str) -> tuple[Node, ...]:
    if isinstance(node, App) and node.op == op:
        return tuple(operand for argument in node.args for operand in _operands(argument, op))
    return (node,)


def _unknown_of(node: Node) -> Node | None:
    """The unknown that an inequality speaks of, where it is plain."""
    if isinstance(node, Listing):
        return _unknown_of(node.items[0])
    if not isinstance(node, Relation):
        return None
    return next((part for part in node.parts if is_subject(part)), None)


def _listed(node: Node) -> Node:
    """`(a, b) = (1, 2)` as the list `a = 1, b = 2`."""
    if isinstance(node, Listing):
        return Listing(carried(node.items), node.joint)
    if not isinstance(node, Relation) or node.ops != ("=",):
        return node
    left, right = node.parts
    if isinstance(left, Group) and isinstance(right, Group) and len(left.items) == len(right.items):
        return Listing(tuple(Relation(pair, ("=",)) for pair in zip(left.items, right.items, strict=True)))
    return node


def _compare_sets(gold: Node, answer: Node) -> Outcome:
    if isinstance(gold, Group) and isinstance(answer, Group):
        if {gold.opening, answer.opening} == {"{", "["}:  # [2, 2] is {2}, while [1, 2] is not {1, 2}
            regions = region(gold), region(answer)
            return Outcome(regions[0] is not None and regions[0] == regions[1], "region")
        return compare_groups(gold, answer, compare)
    return _NO


def _compare_tuples(gold: Node, answer: Node) -> Outcome:
    if isinstance(gold, Group) and isinstance(answer, Group):
        return compare_groups(gold, answer, compare)
    one, two = vector(gold), vector(answer)
    return _NO if one is None or two is None else compare_groups(one, two, compare)


def _compare_matrices(gold: Node, answer: Node) -> Outcome:
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return compare_matrices(gold, answer, compare)
    return _NO


def _compare_formulas(gold: Node, answer: Node) -> Outcome:
    found = same_up_to_constant(gold, answer)
    return compare_expressions(gold, answer) if found is None else Outcome(found, "constant")


_ABOVE_RELATIONS = frozenset({Kind.NOTATION, Kind.QUANTITY, Kind.SET, Kind.TUPLE, Kind.MATRIX, Kind.GROWTH})
"""Types that may stand on the right of an assignment."""
_COMPARERS: Mapping[Kind, Callable[[Node, Node], Outcome]] = {
    Kind.NOTATION: lambda _, __: _NO,
    Kind.TEXT: _compare_words,
    Kind.MOMENT: compare_moments,
    Kind.NUMERAL: lambda _, __: Outcome(False, "base"),
    Kind.QUANTITY: _compare_quantities,
    Kind.REGION: _compare_regions,
    Kind.LIST: lambda gold, answer: compare_lists(_listed(gold), _listed(answer), compare),
    Kind.SET: _compare_sets,
    Kind.TUPLE: _compare_tuples,
    Kind.MATRIX: _compare_matrices,
    Kind.MODULAR: lambda gold, answer: compare_modular(gold, answer, compare),
    Kind.RELATION: lambda gold, answer: compare_relations(gold, answer, compare),
    Kind.RATIO: lambda gold, answer: compare_ratios(gold, answer, compare),
    Kind.CLOCK: compare_clocks,
    Kind.GROWTH: lambda gold, answer: compare_growth(gold, answer, compare),
    Kind.EXPRESSION: _compare_formulas,
    Kind.NUMBER: compare_expressions,
}
