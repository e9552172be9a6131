"""The types of answers."""

from __future__ import annotations

from enum import StrEnum

from roll_verifier_math.reading.nodes import (
    App,
    Group,
    Listing,
    Matrix,
    Moment,
    Node,
    Notation,
    Numeral,
    Quantity,
    Relation,
    Words,
    symbols,
)
from roll_verifier_math.reading.shapes import names_region
from roll_verifier_math.reading.vocabulary import GROWTH


class Kind(StrEnum):
    """Types, the most telling first: where the two sides differ in type, the one that comes first decides."""

    NOTATION = "notation"
    """Beyond the parser; equal only when written alike."""
    TEXT = "text"
    MOMENT = "moment"
    """A date or a time of day."""
    NUMERAL = "numeral"
    """Digits in a base."""
    QUANTITY = "quantity"
    """A number with a unit."""
    REGION = "region"
    """An interval, a union of intervals, an inequality."""
    LIST = "list"
    SET = "set"
    TUPLE = "tuple"
    """A point, an interval whose ends are both open or both closed, a vector."""
    MATRIX = "matrix"
    MODULAR = "modular"
    RELATION = "relation"
    """An equation or an assignment."""
    RATIO = "ratio"
    CLOCK = "clock"
    """Hours and minutes, or a ratio that looks like them."""
    GROWTH = "growth"
    """An order of growth, as in `O(n)`."""
    EXPRESSION = "expression"
    NUMBER = "number"


_BY_CLASS: dict[type, Kind] = {
    Notation: Kind.NOTATION,
    Words: Kind.TEXT,
    Moment: Kind.MOMENT,
    Numeral: Kind.NUMERAL,
    Quantity: Kind.QUANTITY,
    Listing: Kind.LIST,
    Matrix: Kind.MATRIX,
    Relation: Kind.RELATION,
}
_BY_OPERATION = {
    "modulo": Kind.MODULAR,
    "ratio": Kind.RATIO,
    "clock": Kind.CLOCK,
    **dict.fromkeys(GROWTH, Kind.GROWTH),
}


def kind_of(node: Node) -> Kind:
    """The type of an answer."""
    if isinstance(node, App) and (kind := _BY_OPERATION.get(node.op)):
        return kind
    if names_region(node):
        return Kind.REGION
    if isinstance(node, Group):
        return Kind.SET if node.opening == "{" else Kind.TUPLE
    if kind := _BY_CLASS.get(type(node)):
        return kind
    return Kind.EXPRESSION if symbols(node) else Kind.NUMBER
