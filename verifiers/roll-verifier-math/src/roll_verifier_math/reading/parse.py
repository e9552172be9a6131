"""A recursive-descent parser from normalised text to the tree of `nodes`. It reads all of the text or refuses."""

from __future__ import annotations

from fractions import Fraction

from roll_verifier_math.bounds import MAX_ITEMS, MAX_LEVELS, MAX_NODES, RefusedError, TooLargeError
from roll_verifier_math.reading.build import negative, raised, times, total
from roll_verifier_math.reading.commands import Commands
from roll_verifier_math.reading.nodes import (
    App,
    Group,
    Listing,
    Matrix,
    Node,
    Num,
    Quantity,
    Relation,
    Sym,
    size_and_depth,
)
from roll_verifier_math.reading.tokens import tokenize
from roll_verifier_math.reading.units import parse_unit
from roll_verifier_math.reading.vocabulary import RELATIONS, SET_OPERATIONS

_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",)}
_SINGLES = ("mathbb R", "mathbb Z", "mathbb N", "mathbb Q", "mathbb C")


def parse(text: str) -> Node:
    """Read normalised text.

    Raises:
        RefusedError: it is not understood as a whole.
        TooLargeError: it is beyond the limits.
    """
    tokens = tokenize(text)
    if len(tokens) > 2 * MAX_NODES:
        raise TooLargeError(f"{len(tokens)} tokens")
    parser = _Parser(tokens)
    node = parser.whole()
    parser.expect_end()
    if len(tokens) > MAX_LEVELS:
        size, levels = size_and_depth(node)
        if size > MAX_NODES or levels > MAX_LEVELS:
            raise TooLargeError(f"{size} operations on {levels} levels")
    return node


class _Parser(Commands):
    def whole(self) -> Node:
        """Everything, a list included."""
        return self._listing()

    # --- lists, relations, sets ---

    def _listing(self) -> Node:
        items = [self._relation()]
        joint = ","
        while self._is_mark(",", ";") or (self._next.kind == "text" and self._next.value in ("and", "or")):
            token = self._take()
            if token.kind == "text":
                joint = token.value
            elif self._next.kind == "text" and self._next.value in ("and", "or"):
                joint = self._take().value
            items.append(self._relation())
        if len(items) > MAX_ITEMS:
            raise TooLargeError(f"{len(items)} items")
        return items[0] if len(items) == 1 else Listing(tuple(items), joint)

    def _relation(self) -> Node:
        parts, ops = [self._ratio()], []
        while self._next.value in RELATIONS and self._next.kind in ("mark", "command"):
            ops.append(RELATIONS[self._take().value])
            parts.append(self._ratio())
        node = parts[0] if not ops else Relation(tuple(parts), tuple(ops))
        if self._is_command("pmod"):
            self._at += 1
            node = App("modulo", (node, self._argument()))
        return node

    def _ratio(self) -> Node:
        parts = [self._sets()]
        while self._is_mark(":"):
            self._at += 1
            parts.append(self._sets())
        return parts[0] if len(parts) == 1 else App("ratio", tuple(parts))

    def _sets(self) -> Node:
        node = self._sum()
        while self._is_command(*SET_OPERATIONS):
            op = self._take().value
            node = App(op, (node, self._sum()))
        return node

    # --- arithmetic ---

    def _sum(self) -> Node:
        terms = [self._signed_product()]
        while self._is_mark("+", "-") or self._is_command("pm", "mp"):
            if len(terms) == 1 and self._is_mark("-") and _is_set(terms[0]):
                self._at += 1
                terms = [App("setminus", (terms[0], self._product()))]
            else:
                terms.append(self._signed_product())
        return total(terms)

    def _signed_product(self) -> Node:
        if self._is_mark("+"):
            self._at += 1
            if self._is_mark("+"):
                raise RefusedError("two signs")
        if self._is_mark("-"):
            self._at += 1
            if self._is_mark("-", "+"):
                raise RefusedError("two signs")
            return negative(self._product())
        if self._is_command("pm", "mp"):
            return App(self._take().value, (self._product(),))
        return self._product()

    def _product(self) -> Node:
        node = self._signed_factor()
        while True:
            if self._is_mark("*") or self._is_command("cdot", "times", "ast"):
                self._at += 1
                node = times(node, self._signed_factor())
            elif self._is_mark("/") or self._is_command("div"):
                self._at += 1
                node = App("div", (node, self._signed_factor()))
            elif self._starts_factor() or (self._next.kind == "number" and _is_factorial(node)):
                node = times(node, self._power())
            elif self._next.kind == "text" and self._next.value not in ("and", "or"):
                node = self._with_unit(node)
            else:
                return node

    def _with_unit(self, node: Node) -> Node:
        unit = parse_unit(self._next.value)
        if unit is None or isinstance(node, Quantity):
            raise RefusedError(f"unexpected {self._next.value!r}")
        self._at += 1
        return Quantity(node, unit.factor, unit.powers)

    def _signed_factor(self) -> Node:
        if self._is_mark("-"):
            self._at += 1
            return negative(self._power())
        return self._power()

    def _power(self) -> Node:
        node = self._postfix(self._primary())
        if self._is_mark("^"):
            self._at += 1
            node = self._postfix(raised(node, self._exponent()))
        return node

    def _exponent(self) -> Node:
        if self._is_mark("-", "+"):
            is_negative = self._take().value == "-"
            node = self._primary()
            return negative(node) if is_negative else node
        if self._is_mark("{"):
            return self._argument()
        node = self._primary()
        if self._is_mark("^"):  # plain text: 2^3^2 is 2^(3^2)
            self._at += 1
            self._enter()
            node = raised(node, self._exponent())
            self._depth -= 1
        return node

    def _postfix(self, node: Node) -> Node:
        while self._is_mark("!", "%", "\\%"):
            if self._take().value != "!":
                node = App("div", (node, Num(Fraction(100))))
            elif self._is_mark("!"):
                self._at += 1
                node = App("factorial2", (node,))
            else:
                node = App("factorial", (node,))
        return node

    # --- primaries ---

    def _primary(self) -> Node:
        self._enter()  # every nesting passes here
        node = self._unguarded_primary()
        self._depth -= 1
        return node

    def _unguarded_primary(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return self._number(Num(Fraction(token.value)))
        if token.kind == "name":
            return self._symbol(token.value)
        if token.kind == "command":
            return self._command(token.value)
        if token.kind == "text" and len(token.value) == 1 and token.value.isalpha():
            return self._symbol(token.value)
        if token.kind == "mark" and token.value in _CLOSERS:
            return self._group(token.value)
        if token.kind == "mark" and token.value in ("{", "|"):
            return self._braces() if token.value == "{" else self._absolute()
        raise RefusedError(f"unexpected {token.value!r}")

    def _number(self, number: Num) -> Node:
        if self._is_mark("_"):
            raise RefusedError("a number with a subscript")
        if number.value.denominator == 1 and self._is_command("frac") and self._plain_fraction_follows():
            self._at += 1
            return App("add", (number, self._fraction()))
        return number

    def _group(self, opening: str) -> Node:
        bars, self._bars = self._bars, 0
        if opening == "\\{" and self._is_mark("\\}"):
            self._at += 1
            self._bars = bars
            return Sym("emptyset")
        items = [self._relation()]
        while self._is_mark(",", ";"):
            self._at += 1
            items.append(self._relation())
        if len(items) > MAX_ITEMS:
            raise TooLargeError(f"{len(items)} items")
        closing = self._take()
        if closing.kind != "mark" or closing.value not in _CLOSERS[opening]:
            raise RefusedError(f"{opening!r} is closed by {closing.value!r}")
        self._bars = bars
        if len(items) == 1 and opening in "([" and closing.value in ")]":
            only = items[0]
            if (opening == "(" and closing.value == ")") or isinstance(only, Matrix):
                return only
        return Group(opening[-1], closing.value[-1], tuple(items))

    def _braces(self) -> Node:
        bars, self._bars = self._bars, 0
        node = self._listing()
        if self._is_command("choose"):
            self._at += 1
            node = App("binom", (node, self._sum()))
        self._skip_mark("}")
        self._bars = bars
        return node

    def _absolute(self) -> Node:
        bars, self._bars = self._bars, 1
        node = self._sum()
        self._skip_mark("|")
        self._bars = bars
        return App("abs", (node,))


def _is_set(node: Node) -> bool:
    return (isinstance(node, Sym) and node.name in _SINGLES) or (isinstance(node, Group) and node.opening == "{")


def _is_factorial(node: Node) -> bool:
    last = node.args[-1] if isinstance(node, App) and node.op == "mul" else node
    return isinstance(last, App) and last.op in ("factorial", "factorial2")
