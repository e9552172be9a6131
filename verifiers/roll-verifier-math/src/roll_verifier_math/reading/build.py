"""Nodes put together, in the form the rest expects."""

from __future__ import annotations

from roll_verifier_math.reading.nodes import App, Matrix, Node, Sym


def negative(node: Node) -> Node:
    """The node with a minus sign; it goes into a matrix."""
    if isinstance(node, Matrix):
        return Matrix(tuple(tuple(App("neg", (entry,)) for entry in row) for row in node.rows))
    return App("neg", (node,))


def times(left: Node, right: Node) -> Node:
    """The product; a scalar goes into a matrix, two matrices of fitting shapes are multiplied."""
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        return _matrix_product(left, right)
    if isinstance(left, Matrix):
        left, right = right, left
    if isinstance(right, Matrix):
        return Matrix(tuple(tuple(App("mul", (left, entry)) for entry in row) for row in right.rows))
    return App("mul", (*left.args, right)) if isinstance(left, App) and left.op == "mul" else App("mul", (left, right))


def total(terms: list[Node]) -> Node:
    """The sum; matrices of one shape are added entry by entry."""
    if len(terms) == 1:
        return terms[0]
    first = terms[0]
    if isinstance(first, Matrix) and all(_shape(first) == _shape(term) for term in terms):
        grids = [term.rows for term in terms if isinstance(term, Matrix)]
        return Matrix(
            tuple(
                tuple(App("add", entries) for entries in zip(*rows, strict=True)) for rows in zip(*grids, strict=True)
            )
        )
    return App("add", tuple(terms))


def raised(base: Node, exponent: Node) -> Node:
    """The power; a raised circle is a degree sign, a raised prime is part of the symbol's name."""
    if exponent == Sym("circ"):
        return App("deg", (base,))
    if isinstance(base, Sym) and isinstance(exponent, Sym) and exponent.name in ("prime", "top"):
        return Sym(base.name + "'") if exponent.name == "prime" else App("pow", (base, Sym("T")))
    return App("pow", (base, exponent))


def _shape(node: Node) -> tuple[int, int] | None:
    return (len(node.rows), len(node.rows[0])) if isinstance(node, Matrix) else None


def _matrix_product(left: Matrix, right: Matrix) -> Node:
    if len(left.rows[0]) != len(right.rows) or len(left.rows) * len(right.rows[0]) * len(right.rows) > 64:
        return App("mul", (left, right))
    columns = list(zip(*right.rows, strict=True))
    return Matrix(
        tuple(
            tuple(
                App("add", tuple(App("mul", pair) for pair in zip(row, column, strict=True)))
                if len(row) > 1
                else App("mul", (row[0], column[0]))
                for column in columns
            )
            for row in left.rows
        )
    )
