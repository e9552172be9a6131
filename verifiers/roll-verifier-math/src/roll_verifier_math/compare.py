"""Are two readings the same answer? Exact first, then by kind, then numerically at high precision, then by proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from roll_verifier_math.bounds import TooCostlyError
from roll_verifier_math.nodes import App, Group, Listing, Matrix, Node, Num, Quantity, Relation, Sym, Words, symbols
from roll_verifier_math.numeric import NoValueError, agree_at, evaluate, points
from roll_verifier_math.regions import names_region, region
from roll_verifier_math.symbolic import proved_equal
from roll_verifier_math.values import exact

_POINTS = 6
_NEEDED = 3
"""Points at which both sides must have a value before agreement counts."""
_ORDERED = {"<": (1, True), "<=": (1, False), ">": (-1, True), ">=": (-1, False)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The finding, and which stage made it ("exact", "numeric", "symbolic", "structure", "words", "region")."""

    is_equal: bool
    stage: str


def compare(gold: Node, answer: Node) -> Outcome:  # noqa: PLR0911 - one line a pair of kinds
    """Compare the reference's tree with the answer's.

    Raises:
        TooCostlyError: the values would be beyond the limits.
    """
    gold, answer = _without_unit(gold, answer)
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return Outcome(False, "unit")
    if isinstance(gold, Words) or isinstance(answer, Words):
        return Outcome(gold == answer, "words")
    if names_region(gold) or names_region(answer):
        found = _compare_regions(gold, answer)
        if found is not None:
            return found
    match gold, answer:
        case (Listing(), _) | (_, Listing()):
            return Outcome(_same_items(_items(gold), _items(answer)), "structure")
        case Group(), Group():
            return _compare_groups(gold, answer)
        case Matrix(a), Matrix(b):
            same = [len(r) for r in a] == [len(r) for r in b] and all(
                _equal(x, y) for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True)
            )
            return Outcome(same, "structure")
        case (Relation(), _) | (_, Relation()):
            return Outcome(_compare_relations(gold, answer), "structure")
        case App("ratio", a), App("ratio", b):
            return Outcome(len(a) == len(b) and all(map(_equal, a, b)), "structure")
        case App("modulo", (a, m)), App("modulo", (b, n)):
            return Outcome(m == n and _congruent(a, b, exact(m)), "structure")
        case (Group() | Matrix(), _) | (_, Group() | Matrix()):
            return Outcome(False, "structure")
        case _:
            return _compare_expressions(gold, answer)


def _equal(left: Node, right: Node) -> bool:
    return compare(left, right).is_equal


def _congruent(left: Node, right: Node, modulus: Fraction | None) -> bool:
    """Whether two sides of statements modulo `modulus` agree; left sides must be the same."""
    if isinstance(left, Relation) and isinstance(right, Relation):
        if left.ops != ("==",) or right.ops != ("==",) or left.parts[0] != right.parts[0]:
            return False
        left, right = left.parts[1], right.parts[1]
    one, two = exact(left), exact(right)
    if one is None or two is None or not modulus:
        return left == right
    return (one - two) % modulus == 0


# --- containers -------------------------------------------------------------------------------------------------------


def _without_unit(gold: Node, answer: Node) -> tuple[Node, Node]:
    """Drop units that agree, and one that stands on one side only."""
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return (gold.value, answer.value) if gold.unit == answer.unit else (gold, answer)
    return (
        gold.value if isinstance(gold, Quantity) else gold,
        answer.value if isinstance(answer, Quantity) else answer,
    )


def _items(node: Node) -> tuple[Node, ...]:
    match node:
        case Listing(items, _) | Group("{", "}", items):
            return items
        case Relation((left, Listing(items, _)), ("=",)):
            return tuple(Relation((left, item), ("=",)) for item in items)
        case _:
            return (node,)


def _same_items(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    """Equal as multisets. An assignment `x = 1, 2` reaches over the items behind it."""
    gold, answer = _carried(gold), _carried(answer)
    left = list(answer)
    if len(gold) != len(answer):
        return False
    for item in gold:
        for index, other in enumerate(left):
            if _equal(item, other):
                del left[index]
                break
        else:
            return False
    return True


def _carried(items: Sequence[Node]) -> list[Node]:
    first = items[0]
    bare = len(items) > 1 and isinstance(first, Relation) and not any(isinstance(i, Relation) for i in items[1:])
    if bare and isinstance(first, Relation) and first.ops == ("=",) and _is_subject(first.parts[0]):
        return [first.parts[1], *items[1:]]
    return list(items)


def _compare_groups(gold: Group, answer: Group) -> Outcome:
    if (gold.opening, gold.closing) != (answer.opening, answer.closing):
        return Outcome(False, "structure")
    if gold.opening == "{":
        return Outcome(_same_items(_distinct(gold.items), _distinct(answer.items)), "structure")
    same = len(gold.items) == len(answer.items) and all(map(_equal, gold.items, answer.items))
    return Outcome(same, "structure")


def _distinct(items: Sequence[Node]) -> list[Node]:
    kept: list[Node] = []
    for item in items:
        if not any(_equal(item, other) for other in kept):
            kept.append(item)
    return kept


# --- relations --------------------------------------------------------------------------------------------------------


def _compare_regions(gold: Node, answer: Node) -> Outcome | None:
    regions = region(gold), region(answer)
    if regions[0] is None or regions[1] is None:
        return None
    one, two = _subject(gold), _subject(answer)
    return Outcome(regions[0] == regions[1] and (one is None or two is None or one == two), "region")


def _subject(node: Node) -> Node | None:
    """The unknown that an inequality speaks of, where it is plain."""
    if isinstance(node, Listing):
        return _subject(node.items[0])
    if not isinstance(node, Relation):
        return None
    return next((part for part in node.parts if _is_subject(part)), None)


def _is_subject(node: Node) -> bool:
    return isinstance(node, Sym) or (isinstance(node, App) and node.op.startswith("call:"))


def _compare_relations(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _same_relation(gold, answer)
    relation, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
    if not isinstance(relation, Relation) or set(relation.ops) - {"=", "~"} or not isinstance(other, Num | Sym | App):
        return False
    *before, value = relation.parts
    if not _equal(value, other):
        return False
    first = before[0]
    return _is_subject(first) or _names_quantity(first) or all(_equal(part, value) for part in before)


def _names_quantity(node: Node) -> bool:
    r"""Whether a left side such as `|AB|` or `S_1 : S` only names what the right side gives."""
    if not isinstance(node, App) or node.op not in ("abs", "ratio"):
        return False
    parts = node.args[0].args if node.op == "abs" and isinstance(node.args[0], App) else node.args
    return len(parts) == 2 and all(isinstance(part, Sym) for part in parts)


def _same_relation(gold: Relation, answer: Relation) -> bool:
    if len(gold.ops) != len(answer.ops):
        return False
    if gold.ops == answer.ops and all(map(_equal, gold.parts, answer.parts)):
        return True
    if len(gold.ops) != 1:
        return False
    return _proportional(gold, answer)


def _proportional(gold: Relation, answer: Relation) -> bool:
    """Whether both say `k * (left - right) op 0` with one constant k (positive for inequalities)."""
    one, two = gold.ops[0], answer.ops[0]
    if one in _ORDERED and two in _ORDERED:
        (sign_one, strict_one), (sign_two, strict_two) = _ORDERED[one], _ORDERED[two]
        if strict_one != strict_two:
            return False
        sign = sign_one * sign_two
    elif one == two and one in ("=", "!="):
        sign = 0
    else:
        return False
    left = App("add", (gold.parts[0], App("neg", (gold.parts[1],))))
    right = App("add", (answer.parts[0], App("neg", (answer.parts[1],))))
    names = symbols(left) | symbols(right)
    if not names or symbols(left) != symbols(right):
        return False
    return _constant_ratio(left, right, names, sign)


def _constant_ratio(left: Node, right: Node, names: frozenset[str], sign: int) -> bool:
    ratios = []
    for env in points(names, _POINTS):
        try:
            bottom = evaluate(right, env)
            if bottom != 0:
                ratios.append(evaluate(left, env) / bottom)
        except NoValueError:
            continue
    if len(ratios) < _NEEDED or ratios[0] == 0:
        return False
    if sign and (ratios[0].imag != 0 or ratios[0].real * sign < 0):
        return False
    return all(abs(ratio - ratios[0]) <= abs(ratios[0]) * 1e-60 for ratio in ratios)


# --- expressions ------------------------------------------------------------------------------------------------------


def _compare_expressions(gold: Node, answer: Node) -> Outcome:
    if gold == answer:
        return Outcome(True, "structure")
    one, two = exact(gold), exact(answer)
    if one is not None and two is not None:
        return Outcome(one == two, "exact")
    if (found := _compare_numerically(gold, answer)) is not None:
        if found and proved_equal(gold, answer):
            return Outcome(True, "symbolic")
        return Outcome(found, "numeric")
    return Outcome(proved_equal(gold, answer), "symbolic")


def _compare_numerically(gold: Node, answer: Node) -> bool | None:
    """Whether the values agree at every point where both have one; None when there are too few such points."""
    names = symbols(gold) | symbols(answer)
    agreed = 0
    for env in points(names, _POINTS if names else 1):
        try:
            if not agree_at(gold, answer, env):
                return False
        except NoValueError:
            continue
        agreed += 1
    return True if agreed >= (_NEEDED if names else 1) else None


__all__ = ["Outcome", "TooCostlyError", "compare"]
