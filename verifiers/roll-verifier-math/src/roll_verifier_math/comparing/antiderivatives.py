"""Functions that are given up to a constant, as in `x^2 + C`."""

from __future__ import annotations

import re

from roll_verifier_math.comparing.expressions import difference_is_constant
from roll_verifier_math.reading.nodes import App, Node, Sym, symbols

_CONSTANT = re.compile(r"[CcKk](?:_[0-9])?")
_VARIABLES = frozenset({"x", "y", "z", "t", "u", "v", "s", "r", "w", "theta", "phi"})


def same_up_to_constant(gold: Node, answer: Node) -> bool | None:
    """Whether two functions with a free constant are the same family; None when they are no such functions.

    Each side must add one constant (C, c, K or k, at least one of them the capital C), of which nothing else on that
    side depends, to a function of an unknown.
    """
    one, two = _split(gold), _split(answer)
    if one is None or two is None:
        return None
    names = {one[0], two[0]}
    if not any(name.startswith("C") for name in names):
        return None
    variables = (symbols(one[1]) | symbols(two[1])) & _VARIABLES
    if not variables or names & (symbols(one[1]) | symbols(two[1])):
        return None
    if any(name[0].isupper() for name in symbols(one[1]) | symbols(two[1])):
        return None
    return difference_is_constant(one[1], two[1])


def _split(node: Node) -> tuple[str, Node] | None:
    """The constant's name and the rest of the sum; None without exactly one free constant."""
    if not isinstance(node, App) or node.op != "add":
        return None
    constants = [term for term in node.args if _constant_name(term)]
    rest = tuple(term for term in node.args if not _constant_name(term))
    if len(constants) != 1 or not rest:
        return None
    name = _constant_name(constants[0])
    function = App("add", rest)
    return (name, function) if name and name not in symbols(function) else None


def _constant_name(term: Node) -> str | None:
    inner = term.args[0] if isinstance(term, App) and term.op == "neg" else term
    return inner.name if isinstance(inner, Sym) and _CONSTANT.fullmatch(inner.name) else None
