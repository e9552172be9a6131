"""A recursive-descent parser from normalised text to the tree of `nodes`. It reads all of the text or refuses."""

from __future__ import annotations

from fractions import Fraction

from roll_verifier_math.bounds import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_LEVELS,
    MAX_NODES,
    RefusedError,
    TooCostlyError,
    check_text,
)
from roll_verifier_math.build import negative, raised, times
from roll_verifier_math.cursor import Cursor
from roll_verifier_math.nodes import App, Group, Listing, Matrix, Node, Num, Relation, Sym, size_and_depth
from roll_verifier_math.tokens import Token, tokenize
from roll_verifier_math.vocabulary import (
    CALLABLE,
    DECORATORS,
    FUNCTIONS,
    GREEK,
    INVERSE,
    RELATIONS,
    SET_OPERATIONS,
    SET_SYMBOLS,
)

_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",)}
_MATRICES = frozenset({"pmatrix", "bmatrix", "matrix", "array"})


def parse(text: str) -> Node:
    """Read normalised text.

    Raises:
        RefusedError: it is not understood as a whole.
        TooCostlyError: it is beyond the limits.
    """
    check_text(text)
    tokens = tokenize(text)
    if len(tokens) > 2 * MAX_NODES:
        raise TooCostlyError(f"{len(tokens)} tokens")
    parser = _Parser(tokens)
    node = parser.listing()
    parser.expect_end()
    size, levels = size_and_depth(node)
    if size > MAX_NODES or levels > MAX_LEVELS:
        raise TooCostlyError(f"{size} operations on {levels} levels")
    return node


class _Parser(Cursor):
    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._depth = 0
        self._bars = 0

    # --- lists, relations, sets ---

    def listing(self) -> Node:
        items = [self._relation()]
        joint = ","
        while self._is_mark(",", ";") or self._next.value in ("and", "or"):
            token = self._take()
            if token.kind == "text":
                joint = token.value
            elif self._next.kind == "text" and self._next.value in ("and", "or"):
                joint = self._take().value
            items.append(self._relation())
        if len(items) > MAX_ITEMS:
            raise TooCostlyError(f"{len(items)} items")
        return items[0] if len(items) == 1 else Listing(tuple(items), joint)

    def _relation(self) -> Node:
        parts, ops = [self._ratio()], []
        while self._next.value in RELATIONS and self._next.kind in ("mark", "command"):
            ops.append(RELATIONS[self._take().value])
            parts.append(self._ratio())
        node = parts[0] if not ops else Relation(tuple(parts), tuple(ops))
        if self._is_command("pmod", "bmod", "mod"):
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
            terms.append(self._signed_product())
        return terms[0] if len(terms) == 1 else App("add", tuple(terms))

    def _signed_product(self) -> Node:
        if self._is_mark("+"):
            self._at += 1
            if self._is_mark("+"):
                raise RefusedError("two signs")
        if self._is_mark("-"):
            self._at += 1
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
            elif self._starts_factor():
                node = times(node, self._power())
            else:
                return node

    def _signed_factor(self) -> Node:
        if self._is_mark("-"):
            self._at += 1
            return negative(self._power())
        return self._power()

    def _starts_factor(self) -> bool:
        """Whether a factor follows without a sign between; a number never does."""
        token = self._next
        if token.kind == "name":
            return True
        if token.kind == "command":
            return (
                token.value not in RELATIONS
                and token.value not in SET_OPERATIONS
                and token.value not in _ENDS
                and not token.value.startswith("end ")
            )
        return self._is_mark("(", "[", "{", "\\{") or (self._is_mark("|") and self._bars == 0)

    def _power(self) -> Node:
        node = self._postfix(self._primary())
        if self._is_mark("^"):
            self._at += 1
            node = self._postfix(raised(node, self._exponent()))
        return node

    def _exponent(self) -> Node:
        if self._is_mark("-"):
            self._at += 1
            return negative(self._primary())
        if self._is_mark("{"):
            return self._argument()
        node = self._primary()
        if self._is_mark("^"):  # plain text: 2^3^2 is 2^(3^2)
            self._at += 1
            self._depth += 1
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
        self._depth += 1  # every nesting passes here
        if self._depth > MAX_DEPTH:
            raise TooCostlyError("nested too deep")
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
        if token.kind == "mark" and token.value in _CLOSERS:
            return self._group(token.value)
        if token.kind == "mark" and token.value in ("{", "|"):
            return self._braces() if token.value == "{" else self._absolute()
        raise RefusedError(f"unexpected {token.value!r}")

    def _number(self, number: Num) -> Node:
        if self._is_mark("_"):
            self._at += 1
            return App("base", (number, self._argument()))
        if number.value.denominator == 1 and self._is_command("frac") and self._plain_fraction_follows():
            self._at += 1
            return App("add", (number, self._fraction()))
        return number

    def _symbol(self, name: str) -> Node:
        if self._is_mark("_"):
            self._at += 1
            start = self._at
            self._argument()
            name += "_" + "".join(t.value for t in self._tokens[start : self._at] if t.value not in ("{", "}"))
        while self._is_mark("'"):
            self._at += 1
            name += "'"
        if name.rstrip("'") in CALLABLE and self._is_mark("(") and not self._next.spaced:
            self._at += 1
            inner = self._group("(")
            return App(f"call:{name}", inner.items if isinstance(inner, Group) else (inner,))
        return Sym(name)

    def _group(self, opening: str) -> Node:
        bars, self._bars = self._bars, 0
        items = [self._relation()]
        while self._is_mark(",", ";"):
            self._at += 1
            items.append(self._relation())
        if len(items) > MAX_ITEMS:
            raise TooCostlyError(f"{len(items)} items")
        closing = self._take()
        if closing.kind != "mark" or closing.value not in _CLOSERS[opening]:
            raise RefusedError(f"{opening!r} is closed by {closing.value!r}")
        self._bars = bars
        if len(items) == 1 and opening == "(" and closing.value == ")":
            return items[0]
        return Group(opening[-1], closing.value[-1], tuple(items))

    def _braces(self) -> Node:
        bars, self._bars = self._bars, 0
        node = self.listing()
        if self._is_command("choose"):
            self._at += 1
            node = App("binom", (node, self._sum()))
        self._skip_mark("}")
        self._bars = bars
        return node

    def _absolute(self) -> Node:
        self._bars += 1
        node = self._sum()
        self._skip_mark("|")
        self._bars -= 1
        return App("abs", (node,))

    def _argument(self) -> Node:
        """A braced group, or a single digit or token."""
        if self._is_mark("{"):
            self._at += 1
            return self._braces()
        token = self._next
        if token.kind == "number" and token.value.isdigit():
            digits = [Token("number", digit, token.spaced) for digit in token.value]
            self._tokens[self._at : self._at + 1] = digits
            return Num(Fraction(int(self._take().value)))
        return self._primary()

    # --- commands ---

    def _command(self, name: str) -> Node:  # noqa: PLR0911 - one line a command
        if name == "frac":
            return self._fraction()
        if name == "binom":
            return App("binom", (self._argument(), self._argument()))
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS:
            return self._function(name)
        if name in GREEK:
            return self._symbol(name)
        if name in ("pi", "infty", "ldots", "circ", "prime"):
            return Sym(name)
        if name in ("emptyset", "mathbb"):
            return Sym("emptyset") if name == "emptyset" else self._blackboard()
        if name in ("lfloor", "lceil"):
            return self._rounded(name[1:])
        if name in DECORATORS:
            return self._decorated(name)
        if name.startswith("begin "):
            return self._matrix(name.removeprefix("begin "))
        raise RefusedError(f"unknown command \\{name}")

    def _fraction(self) -> Node:
        return App("div", (self._argument(), self._argument()))

    def _root(self) -> Node:
        degree: Node = Num(Fraction(2))
        if self._is_mark("["):
            self._at += 1
            degree = self._sum()
            self._skip_mark("]")
        return App("root", (self._argument(), degree))

    def _function(self, name: str) -> Node:
        exponent: Node | None = None
        base: Node | None = None
        while self._is_mark("^", "_"):
            if self._take().value == "^":
                exponent = self._exponent()
            else:
                base = self._argument()
        if exponent == negative(Num(Fraction(1))) and name in INVERSE:
            name, exponent = INVERSE[name], None
        arguments = self._function_arguments()
        if base is not None:
            if name != "log":
                raise RefusedError(f"\\{name} with a subscript")
            node: Node = App("log_base", (*arguments, base))
        else:
            node = App("exp" if name == "exp" else name, arguments)
        return node if exponent is None else App("pow", (node, exponent))

    def _function_arguments(self) -> tuple[Node, ...]:
        if self._is_mark("(", "{"):
            inner = self._primary()
            return inner.items if isinstance(inner, Group | Listing) else (inner,)
        node = self._power()
        while self._starts_factor() and not self._is_mark("(", "[") and self._next.value not in FUNCTIONS:
            node = times(node, self._power())
        return (node,)

    def _blackboard(self) -> Node:
        self._skip_mark("{")
        letter = self._take().value
        self._skip_mark("}")
        if letter not in SET_SYMBOLS:
            raise RefusedError(f"unknown set {letter!r}")
        return Sym(f"mathbb {letter}")

    def _rounded(self, what: str) -> Node:
        node = self._sum()
        if not self._is_command(f"r{what}"):
            raise RefusedError(f"\\l{what} is not closed")
        self._at += 1
        return App(what, (node,))

    def _decorated(self, name: str) -> Node:
        """A symbol under a decoration is another symbol, spelt with it."""
        start = self._at
        self._argument()
        while name in ("angle", "triangle") and self._next.kind == "name":
            self._at += 1
        return Sym(f"{name} " + "".join(t.value for t in self._tokens[start : self._at] if t.value not in ("{", "}")))

    def _matrix(self, kind: str) -> Node:
        if kind not in _MATRICES:
            raise RefusedError(f"unknown environment {kind!r}")
        if kind == "array":  # its column specification
            self._skip_mark("{")
            while not self._is_mark("}"):
                if self._take().kind == "end":
                    raise RefusedError("unfinished array")
            self._at += 1
        rows: list[list[Node]] = [[self._sum()]]
        while self._is_mark("&", "\\\\"):
            if self._take().value == "&":
                rows[-1].append(self._sum())
            elif not self._is_command(f"end {kind}"):
                rows.append([self._sum()])
        if not self._is_command(f"end {kind}") or len({len(row) for row in rows}) != 1:
            raise RefusedError("ragged or unfinished matrix")
        self._at += 1
        return Matrix(tuple(tuple(row) for row in rows))


_ENDS = frozenset(["pm", "mp", "choose", "rfloor", "rceil", "cdot", "times", "div", "ast", "pmod", "bmod", "mod"])
