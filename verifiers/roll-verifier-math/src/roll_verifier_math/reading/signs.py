r"""Plus-minus signs: a formula with `\pm` stands for several values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from roll_verifier_math.bounds import TooLargeError
from roll_verifier_math.reading.nodes import App, Group, Listing, Node, Relation, rebuild, walk

_MOST_SIGNS = 4


def expand_signs(node: Node) -> Node:
    r"""A tree with `\pm` as the list of its values.

    Signs of one formula are independent of each other, unless a `\mp` shows that they go together.
    """
    if not any(isinstance(n, App) and n.op in ("pm", "mp") for n in walk(node)):
        return node
    if isinstance(node, Group):
        return Group(node.opening, node.closing, _flat(node.items)) if node.opening == "{" else _values(node)
    if isinstance(node, Listing):
        return Listing(_flat(node.items), node.joint)
    return _values(node)


def _flat(items: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(value for item in items for value in _alternatives(expand_signs(item)))


def _alternatives(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Listing) and node.joint == "or" else (node,)


def _values(node: Node) -> Listing:
    signs = [n.op for n in walk(node) if isinstance(n, App) and n.op in ("pm", "mp")]
    if len(signs) > _MOST_SIGNS:
        raise TooLargeError("many signs")
    count = 1 if "mp" in signs else len(signs)
    choices = itertools.product((True, False), repeat=count)
    found = tuple(_signed(node, itertools.cycle(choice) if count == 1 else iter(choice)) for choice in choices)
    is_excluding = isinstance(node, Relation) and node.ops == ("!=",)
    return Listing(found, "and" if is_excluding else "or")


def _signed(node: Node, plus: Iterator[bool]) -> Node:
    if isinstance(node, App) and node.op in ("pm", "mp"):
        is_plus = next(plus) == (node.op == "pm")
        inner = _signed(node.args[0], plus)
        return inner if is_plus else App("neg", (inner,))
    return rebuild(node, lambda child: _signed(child, plus))
