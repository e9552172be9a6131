"""Comparison of equations, assignments and chains of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from roll_verifier_math.comparing.items import in_order
from roll_verifier_math.comparing.outcome import NUMERIC, Outcome
from roll_verifier_math.evaluating.algebra import form_of
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.evaluating.numeric import are_close, points, ratio_at, real_value
from roll_verifier_math.reading.nodes import App, Group, Matrix, Node, Notation, Quantity, Relation, Sym, symbols, walk
from roll_verifier_math.reading.shapes import is_subject

Compare = Callable[[Node, Node], Outcome]

_ORDERED = {"<": (1, True), "<=": (1, False), ">": (-1, True), ">=": (-1, False)}
_SYMMETRIC = frozenset({"=", "!=", "sim", "parallel", "perp", "cong", "iff", "~"})
_EQUALITIES = frozenset({"=", "~"})
_POINTS = 6
_NEEDED = 3
_LABEL_HEADS = frozenset(
    ["\\int", "\\sum", "\\prod", "\\lim", "\\iint", "\\oint", "\\det", "\\max", "\\min", "\\operatorname",
     "\\Pr", "\\dim", "\\deg", "\\mathbb", "\\frac"]
)  # fmt: skip
_PROBABILITIES = (("P", "("), ("E", "["), ("E", "("), ("P", "["))
_NEARNESS = Fraction(1, 50)
"""How far a stated approximation may be from the value before it, as a share of it."""
_NO = Outcome(False, "structure")


def compare_relations(gold: Node, answer: Node, compare: Compare) -> Outcome:
    """Compare when at least one side is a relation."""
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _compare_two(gold, answer, compare)
    relation, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
    if not isinstance(relation, Relation) or not _EQUALITIES.issuperset(relation.ops):
        return _NO
    value = _stated_value(relation, compare)
    return _NO if value is None else compare(value, other)


def _stated_value(relation: Relation, compare: Compare) -> Node | None:
    """What a chain of equations says its left side is, when that side only names the value; else None."""
    parts, ops = relation.parts, relation.ops
    if "~" in ops:
        at = ops.index("~")
        if is_subject(parts[at]) or set(ops[at:]) != {"~"}:
            return parts[1] if ops == ("~",) else None
        if not all(_is_near(parts[at], part) for part in parts[at + 1 :]):
            return None
        parts = parts[: at + 1]
    first, value = parts[0], parts[-1]
    if _is_label(first) and first != value:
        rest = parts[1:-1]
    elif isinstance(value, Sym) and not isinstance(first, Sym) and not symbols(first) and len(parts) == 2:
        return first  # "2 = x"
    else:
        rest = parts[:-1]
    return value if all((symbols(part) and part != first) or compare(part, value).is_equal for part in rest) else None


def _is_label(node: Node) -> bool:  # noqa: PLR0911 - one line a form
    r"""Whether a left side such as `x`, `f(x)`, `|AB|`, `P(A)`, `(x, y)`, `S_1 : S` only names what the right gives."""
    match node:
        case Notation(tokens):
            is_words = len(tokens) > 2 and all(token.isalpha() for token in tokens)
            return is_words or tokens[0] in _LABEL_HEADS or tokens[:2] in _PROBABILITIES
        case Group("(", _, items):
            return len(items) > 1 and all(map(is_subject, items))
        case Matrix(rows):
            return all(is_subject(entry) for row in rows for entry in row)
        case App("mul", (Sym("m"), Sym(name))):
            return name.startswith(("angle ", "measuredangle "))
        case App("ratio", args):
            return all(map(_is_label, args))
        case App("abs", (inner,)):
            return _is_segment(inner)
        case App("div", args):
            return all(map(_is_differential, args))
        case App("mul", (Sym("P" | "E"), _)):
            return True
        case _:
            return is_subject(node) or _is_segment(node)


def _is_segment(node: Node) -> bool:
    """A product of capitals, as in `AB` or `P(A)`."""
    if isinstance(node, App) and node.op == "mul":
        return all(isinstance(n, Sym) and n.name.rstrip("'")[:1].isupper() for n in node.args)
    return False


def _is_differential(node: Node) -> bool:
    return isinstance(node, App) and node.op == "mul" and len(node.args) == 2 and node.args[0] == Sym("d")


def _is_near(value: Node, stated: Node) -> bool:
    try:
        one, two = real_value(value), real_value(stated)
    except NoValueError:
        return False
    return bool(abs(one - two) <= abs(one) * _NEARNESS.numerator / _NEARNESS.denominator)


def _compare_two(gold: Relation, answer: Relation, compare: Compare) -> Outcome:
    if gold.ops == answer.ops and (outcome := in_order(gold.parts, answer.parts, compare)).is_equal:
        return outcome
    ops = {*gold.ops, *answer.ops}
    if ops <= _EQUALITIES and (max(len(gold.ops), len(answer.ops)) > 1 or gold.parts[0] == answer.parts[0]):
        outcome = _compare_chains(gold, answer, compare)
        if outcome.is_equal:
            return outcome
    if len(gold.ops) != 1 or len(answer.ops) != 1:
        return _NO
    if gold.ops == answer.ops and gold.ops[0] in _SYMMETRIC:
        outcome = in_order(gold.parts, answer.parts[::-1], compare)
        if outcome.is_equal:
            return outcome
    return _proportional(gold, answer)


def _compare_chains(gold: Relation, answer: Relation, compare: Compare) -> Outcome:
    """`x = 2 + 3 = 5` against `x = 5`: the same left side and the same value."""
    if "~" in (gold.ops[0], answer.ops[0]) or gold.parts[0] != answer.parts[0]:
        return _NO
    one, two = _stated_value(gold, compare), _stated_value(answer, compare)
    return _NO if one is None or two is None else compare(one, two)


def _proportional(gold: Relation, answer: Relation) -> Outcome:
    """Whether both say `k * (left - right) op 0` with one constant k (positive for inequalities)."""
    one, two = gold.ops[0], answer.ops[0]
    if one in _ORDERED and two in _ORDERED:
        (sign_one, strict_one), (sign_two, strict_two) = _ORDERED[one], _ORDERED[two]
        if strict_one != strict_two:
            return _NO
        sign = sign_one * sign_two
    elif one == two and one in ("=", "!="):
        sign = 0
    else:
        return _NO
    sides = [*gold.parts, *answer.parts]
    if any(isinstance(n, Group | Matrix | Notation | Quantity) for side in sides for n in walk(side)):
        return _NO
    left = App("add", (gold.parts[0], App("neg", (gold.parts[1],))))
    right = App("add", (answer.parts[0], App("neg", (answer.parts[1],))))
    names = symbols(left)
    if not names or names != symbols(right):
        return _NO
    if sign == 0 and _same_zeros(left, right):
        return Outcome(True, "symbolic")
    return Outcome(_constant_ratio(left, right, names, sign), NUMERIC)


def _constant_ratio(left: Node, right: Node, names: frozenset[str], sign: int) -> bool:
    ratios = []
    for env in points(names, _POINTS):
        try:
            ratios.append(ratio_at(left, right, env))
        except NoValueError:
            continue
        if len(ratios) > 1 and not are_close(ratios[-2:]):
            return False
    if len(ratios) < _NEEDED or ratios[0] == 0:
        return False
    return not sign or (ratios[0].imag == 0 and ratios[0].real * sign > 0)


def _same_zeros(left: Node, right: Node) -> bool:
    """Whether two rational equations differ by a factor without zeros of its own: a number or a denominator."""
    one, two = form_of(left), form_of(right)
    if one is None or two is None or not (one.is_free and two.is_free) or not one.top or len(one.top) != len(two.top):
        return False
    if max(len(one.bottom), len(two.bottom)) > 1:
        return False
    (first, count), *rest = sorted(one.top.items())
    lead = two.top.get(first)
    return lead is not None and all(two.top.get(m, Fraction(0)) * count == c * lead for m, c in rest)
