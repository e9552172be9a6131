"""What the shape of a tree tells: subjects, regions, lists in which one item's words reach over the others."""

from __future__ import annotations

from collections.abc import Sequence

from roll_verifier_math.reading.nodes import App, Group, Listing, Node, Relation, Sym

_ONE_SIDED = ("<", "<=", ">", ">=", "!=", "in")


def is_subject(node: Node) -> bool:
    """Whether a node is an unknown: a symbol, or a function of symbols and numbers."""
    return (isinstance(node, Sym) and node.name not in ("e", "pi", "i", "infty")) or (
        isinstance(node, App) and node.op.startswith("call:")
    )


def names_region(node: Node) -> bool:
    """Whether a tree can only mean a region: an inequality, a half-open interval, an operation on sets."""
    match node:
        case Relation(_, ops):
            return any(op in _ONE_SIDED for op in ops)
        case Group(opening, closing, items):
            return len(items) == 2 and {opening, closing} in ({"(", "]"}, {"[", ")"})
        case App(op, _):
            return op in ("cup", "cap", "setminus")
        case Sym(name):
            return name in ("emptyset", "mathbb R")
        case Listing(items, joint):
            return (joint != "," or excludes(items)) and all(names_region(item) for item in items)
        case _:
            return False


def excludes(items: Sequence[Node]) -> bool:
    """Whether a list such as `x > 1, x != 2` can only mean that all of it holds."""
    return any(isinstance(item, Relation) and item.ops == ("!=",) for item in items)


def carried(items: Sequence[Node]) -> tuple[Node, ...]:
    """Items to which what an earlier or later one says reaches: `n = 1, 2` and `x ≡ 1, 3 (mod 8)`."""
    first, last = items[0], items[-1]
    if isinstance(last, App) and last.op == "modulo" and not any(_is_modulo(item) for item in items[:-1]):
        items = [App("modulo", (item, last.args[1])) for item in items[:-1]] + [last]
        first = items[0]
    subject, ops = _subject_of(first)
    if subject is None or any(_subject_of(item)[0] is not None for item in items[1:]):
        return tuple(items)
    return (first, *(_with_subject(subject, ops, item) for item in items[1:]))


def _is_modulo(node: Node) -> bool:
    return isinstance(node, App) and node.op == "modulo"


def _subject_of(item: Node) -> tuple[Node | None, tuple[str, ...]]:
    if isinstance(item, App) and item.op == "modulo":
        item = item.args[0]
    if isinstance(item, Relation):
        is_plain = item.ops in (("=",), ("==",), ("!=",)) and is_subject(item.parts[0])
        return (item.parts[0] if is_plain else item), item.ops
    return None, ()


def _with_subject(subject: Node, ops: tuple[str, ...], item: Node) -> Node:
    if len(ops) != 1 or isinstance(subject, Relation):
        return item
    if isinstance(item, App) and item.op == "modulo":
        return App("modulo", (Relation((subject, item.args[0]), ops), item.args[1]))
    return Relation((subject, item), ops)
