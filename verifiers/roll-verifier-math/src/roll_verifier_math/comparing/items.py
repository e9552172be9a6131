"""Comparison of what has items: lists, sets, tuples, vectors, matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from roll_verifier_math.comparing.outcome import Outcome, combined
from roll_verifier_math.reading.nodes import Group, Listing, Matrix, Node, Relation, Sym

Compare = Callable[[Node, Node], Outcome]

_NO = Outcome(False, "structure")
_TUPLES = frozenset({("(", ")"), ("<", ">")})


def items_of(node: Node) -> tuple[Node, ...]:
    """The answers that a node gives side by side."""
    match node:
        case Listing(items, _) | Group("{", "}", items):
            return items
        case Relation((Sym(), Group("{", "}", items)), ("in",)):
            return items
        case Relation((left, Listing(items, _) | Group("{", "}", items)), ("=",)):
            return tuple(Relation((left, item), ("=",)) for item in items)
        case _:
            return (node,)


def compare_lists(gold: Node, answer: Node, compare: Compare) -> Outcome:
    """Compare as lists without order; a set has each of its items once."""
    one, two = (distinct(items_of(n), compare) if _is_set(n) else list(items_of(n)) for n in (gold, answer))
    return _same_items(one, two, compare)


def _is_set(node: Node) -> bool:
    return isinstance(node, Group | Relation) or (isinstance(node, Listing) and node.joint == "or")


def compare_groups(gold: Group, answer: Group, compare: Compare) -> Outcome:
    """Compare what stands in brackets: sets without order, everything else with it."""
    if gold.opening == answer.opening == "{":
        return compare_lists(gold, answer, compare)
    kinds = {(gold.opening, gold.closing), (answer.opening, answer.closing)}
    if len(kinds) > 1 and not kinds <= _TUPLES:
        return _NO
    return in_order(gold.items, answer.items, compare)


def compare_matrices(gold: Matrix, answer: Matrix, compare: Compare) -> Outcome:
    """Compare entry by entry."""
    if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
        return _NO
    return in_order([e for row in gold.rows for e in row], [e for row in answer.rows for e in row], compare)


def in_order(gold: Sequence[Node], answer: Sequence[Node], compare: Compare) -> Outcome:
    """Compare item by item."""
    if len(gold) != len(answer):
        return _NO
    return _all(compare(one, two) for one, two in zip(gold, answer, strict=True))


def vector(node: Node) -> Group | None:
    """A tuple or a column as a tuple; None for anything else."""
    if isinstance(node, Group) and (node.opening, node.closing) in _TUPLES:
        return node
    if isinstance(node, Matrix) and len(node.rows) > 1 and len(node.rows[0]) == 1:
        return Group("(", ")", tuple(row[0] for row in node.rows))
    return None


def distinct(items: Sequence[Node], compare: Compare) -> list[Node]:
    """The items, those that are said again left out."""
    kept: list[Node] = []
    for item in items:
        if not any(compare(item, other).is_equal for other in kept):
            kept.append(item)
    return kept


def _same_items(gold: Sequence[Node], answer: Sequence[Node], compare: Compare) -> Outcome:
    left = list(answer)
    if len(gold) != len(answer):
        return _NO
    outcomes = []
    for item in gold:
        for index, other in enumerate(left):
            if (outcome := compare(item, other)).is_equal:
                outcomes.append(outcome)
                del left[index]
                break
        else:
            return _NO
    return Outcome(True, combined(outcomes))


def _all(outcomes: Iterable[Outcome]) -> Outcome:
    found = []
    for outcome in outcomes:
        if not outcome.is_equal:
            return outcome if outcome.stage in ("unit", "numeric") else _NO
        found.append(outcome)
    return Outcome(True, combined(found))
