"""The tree an answer is read into. Plain data: no library is needed to build or compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Num:
    """An exact number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Sym:
    """A symbol: a letter with its subscript, primes and decorations, or a named constant."""

    name: str


@dataclass(frozen=True, slots=True)
class App:
    """An operation: `add mul div neg pow pm`, a function by its name, `call:f`, or an operation on sets."""

    op: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Items in brackets: a tuple, an interval or a set, as the brackets say."""

    opening: str
    closing: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Several answers side by side, in no order; `joint` is "," "and" or "or"."""

    items: tuple[Node, ...]
    joint: str = ","


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain `parts[0] ops[0] parts[1] ops[1] ...`."""

    parts: tuple[Node, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in words, folded."""

    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit: the unit's size in base units, and the base units with their exponents, sorted."""

    value: Node
    factor: Fraction
    unit: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Numeral:
    """Digits in a base, without leading zeros, in capitals."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, a time of day, or both, as far as they are given; hours count from 0 to 23.

    `is_half_known` is false for a time such as "3:30" that may be in the morning or in the afternoon.
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: str | None = None
    hour: int | None = None
    minute: int = 0
    second: int = 0
    is_half_known: bool = True


@dataclass(frozen=True, slots=True)
class Notation:
    """A formula beyond the parser, as its tokens: it equals only what is written alike."""

    tokens: tuple[str, ...]


Node = Num | Sym | App | Group | Listing | Relation | Matrix | Words | Quantity | Numeral | Moment | Notation


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case App(_, args):
            return args
        case Group(_, _, items) | Listing(items, _):
            return items
        case Relation(parts, _):
            return parts
        case Matrix(rows):
            return tuple(entry for row in rows for entry in row)
        case Quantity(value, _, _):
            return (value,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(children(top))


def size_and_depth(node: Node) -> tuple[int, int]:
    """Number of nodes, and of levels; without recursion, since the tree may be deeper than Python allows."""
    size = depth = 0
    level = [node]
    while level:
        size += len(level)
        depth += 1
        level = [child for parent in level for child in children(parent)]
    return size, depth


CONSTANTS = frozenset({"e", "i", "pi", "infty"})


def symbols(node: Node) -> frozenset[str]:
    """Names of the free symbols."""
    return frozenset(n.name for n in walk(node) if isinstance(n, Sym)) - CONSTANTS


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:  # noqa: PLR0911 - one line a kind
    """The node with `change` applied to everything directly below it."""
    match node:
        case App(op, args):
            return App(op, tuple(map(change, args)))
        case Group(opening, closing, items):
            return Group(opening, closing, tuple(map(change, items)))
        case Listing(items, joint):
            return Listing(tuple(map(change, items)), joint)
        case Relation(parts, ops):
            return Relation(tuple(map(change, parts)), ops)
        case Matrix(rows):
            return Matrix(tuple(tuple(map(change, row)) for row in rows))
        case Quantity(value, factor, unit):
            return Quantity(change(value), factor, unit)
        case _:
            return node
