"""Nodes put together, in the form the rest expects."""

from __future__ import annotations

from roll_verifier_math.nodes import App, Matrix, Node, Sym


def negative(node: Node) -> Node:
    """The node with a minus sign."""
    return App("neg", (node,))


def times(left: Node, right: Node) -> Node:
    """The product; a scalar goes into a matrix."""
    if isinstance(left, Matrix) and not isinstance(right, Matrix):
        left, right = right, left
    if isinstance(right, Matrix) and not isinstance(left, Matrix):
        return Matrix(tuple(tuple(App("mul", (left, entry)) for entry in row) for row in right.rows))
    return App("mul", (*left.args, right)) if isinstance(left, App) and left.op == "mul" else App("mul", (left, right))


def raised(base: Node, exponent: Node) -> Node:
    """The power; a raised circle is a degree sign, a raised prime is part of the symbol's name."""
    if exponent == Sym("circ"):
        return App("deg", (base,))
    if exponent == Sym("prime") and isinstance(base, Sym):
        return Sym(base.name + "'")
    return App("pow", (base, exponent))
