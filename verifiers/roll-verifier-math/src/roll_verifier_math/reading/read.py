"""Text to a tree, whatever the text is: words, quantities, dates, lists with words between them, formulas."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from roll_verifier_math.bounds import MAX_ITEMS, RefusedError, TooCostlyError, TooLargeError, check_text
from roll_verifier_math.reading.nodes import App, Group, Listing, Node, Notation, Num, Quantity, Relation, Sym, walk
from roll_verifier_math.reading.normalise import normalise
from roll_verifier_math.reading.parse import parse
from roll_verifier_math.reading.shapes import carried, names_region
from roll_verifier_math.reading.signs import expand_signs
from roll_verifier_math.reading.special import compound, moment, number_words, numeral, prose, words
from roll_verifier_math.reading.split import Split, split_items
from roll_verifier_math.reading.tokens import notation
from roll_verifier_math.reading.units import Unit, split_unit
from roll_verifier_math.reading.vocabulary import GROWTH

_ANGLE = re.compile(r"(?:sin|cos|tan|cot|sec|csc|cis)(?![a-z])")
"""Functions whose argument may carry a degree sign, which is then no unit of the whole."""
_STATEMENTS = frozenset({"clock", "ratio", "modulo", "ordinal", *GROWTH})
"""Operations whose results no unit measures."""
_SET_BUILDER = re.compile(
    r"\\\{\s*([a-z])\s*(?:\\in\s*\\mathbb\s*\{?\s*R\s*\}?)?\s*(?:\\mid|\||:)\s*(.+)\\\}", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer: its normalised text and, where it could be read, its tree; otherwise why not."""

    text: str
    node: Node | None
    refusal: str = ""
    is_out_of_bounds: bool = False

    @property
    def has_notation(self) -> bool:
        """Whether some of it is beyond the parser."""
        return self.node is not None and any(isinstance(n, Notation) for n in walk(self.node))


def read(text: str) -> Reading:
    """Read one answer. Never raises."""
    try:
        check_text(text)
        normal = normalise(text)
    except TooLargeError as error:
        return Reading(text, None, str(error), is_out_of_bounds=True)
    try:
        return Reading(normal, _whole(normal))
    except (TooLargeError, RecursionError) as error:
        return Reading(normal, None, str(error), is_out_of_bounds=True)
    except RefusedError as error:
        return Reading(normal, None, str(error))


read_reference = functools.lru_cache(maxsize=1024)(read)
"""`read`, remembered: a group of responses shares its reference."""


def read_with_unit(text: str) -> Node | None:
    """A formula whose last letter is taken as a unit ("5 m"), for the case that the other side has one."""
    value, unit = split_unit(text, loose=True)
    try:
        return None if unit is None else _with_unit(parse(value), unit)
    except (RefusedError, RecursionError):
        return None


def _whole(text: str) -> Node:
    if not text:
        raise RefusedError("nothing is there")
    for special in (number_words, moment, numeral, compound, words):
        if (node := special(text)) is not None:
            return node
    parts = split_items(text)
    if len(parts.items) == 1:
        return _item(text)
    try:
        return _list(parts)
    except TooLargeError:
        raise
    except RefusedError:
        return _unparsed(text)


def _list(parts: Split) -> Node:
    if len(parts.items) > MAX_ITEMS:
        raise TooLargeError(f"{len(parts.items)} items")
    if not all(parts.items):
        raise RefusedError("an empty item in a list")
    items: list[Node] = []
    for part in parts.items:
        node = number_words(part) or words(part) or _item(part)
        items += node.items if isinstance(node, Listing) and node.joint == "or" else (node,)
    if parts.is_logical and not all(map(names_region, items)):
        raise RefusedError("a statement of logic")
    return Listing(carried(items), parts.joint)


# --- formulas ---------------------------------------------------------------------------------------------------------


def _item(text: str) -> Node:
    if not text:
        raise RefusedError("nothing is there")
    if builder := _SET_BUILDER.fullmatch(text):
        return _whole(builder[2])
    if (special := moment(text) or numeral(text) or compound(text)) is not None:
        return special
    value, unit = (text, None) if _ANGLE.search(text) else split_unit(text)
    try:
        node = parse(value)
    except TooLargeError:
        raise
    except RefusedError:
        return _unparsed(text)
    node = _with_degrees(expand_signs(node))
    try:
        return node if unit is None else _with_unit(node, unit)
    except RefusedError:
        return _unparsed(text)


def _with_unit(node: Node, unit: Unit) -> Node:
    """The unit behind an equation belongs to its right side."""
    if isinstance(node, Relation) and set(node.ops) <= {"=", "~"}:
        return Relation((*node.parts[:-1], _with_unit(node.parts[-1], unit)), node.ops)
    if not isinstance(node, Num | Sym | App | Group | Listing) or _is_statement(node):
        raise RefusedError("a unit on what is no value")
    return Quantity(node, unit.factor, unit.powers)


def _is_statement(node: Node) -> bool:
    return names_region(node) or (isinstance(node, App) and node.op in _STATEMENTS)


def _with_degrees(node: Node) -> Node:
    """A degree sign on a whole item is a unit; inside a formula it is a factor."""
    if isinstance(node, App) and node.op == "deg":
        return Quantity(node.args[0], Fraction(1), (("degree", 1),))
    if isinstance(node, App) and node.op == "neg" and isinstance(node.args[0], App) and node.args[0].op == "deg":
        return Quantity(App("neg", node.args[0].args), Fraction(1), (("degree", 1),))
    if isinstance(node, Relation):
        return Relation(tuple(map(_with_degrees, node.parts)), node.ops)
    if isinstance(node, Group):
        return Group(node.opening, node.closing, tuple(map(_with_degrees, node.items)))
    if isinstance(node, Listing):
        return Listing(tuple(map(_with_degrees, node.items)), node.joint)
    return node


def _unparsed(text: str) -> Node:
    """What no parser reads: an equation whose right side can be read, prose, or bare notation."""
    left, sign, right = text.rpartition("=")
    if sign and right.strip() and left.strip() and left.rstrip()[-1] not in "<>!:=\\":
        sides = []
        for side in (left.strip(), right.strip()):
            try:
                sides.append(_with_degrees(expand_signs(parse(side))) if side == left.strip() else _item(side))
            except TooLargeError:
                raise
            except (RefusedError, TooCostlyError):
                sides.append(Notation(notation(side)))
        if not all(isinstance(side, Notation) for side in sides):
            return Relation(tuple(sides), ("=",))
    return prose(text) or Notation(notation(text))
