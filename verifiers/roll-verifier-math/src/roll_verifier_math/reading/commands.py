r"""The part of the parser that reads commands: fractions, roots, functions, decorated names, matrices."""

from __future__ import annotations

from fractions import Fraction

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.reading.build import negative, times
from roll_verifier_math.reading.cursor import Cursor
from roll_verifier_math.reading.nodes import App, Group, Listing, Matrix, Node, Num, Sym
from roll_verifier_math.reading.tokens import Token
from roll_verifier_math.reading.vocabulary import (
    CALLABLE,
    DECORATORS,
    ENVIRONMENTS,
    FUNCTIONS,
    GREEK,
    INVERSE,
    SET_SYMBOLS,
    SYNONYMS,
)

_NAMED = frozenset(["pi", "infty", "ldots", "circ", "prime", "top"])


class Commands(Cursor):
    """Reads what a backslash starts."""

    def _command(self, name: str) -> Node:  # noqa: PLR0911 - one line a command
        if name == "frac":
            return self._fraction()
        if name == "sqrt":
            return self._root()
        if name in FUNCTIONS:
            return self._function(SYNONYMS.get(name, name))
        if name in GREEK:
            return self._symbol(name)
        if name in _NAMED:
            return Sym(name)
        if name == "binom":
            return App("binom", (self._argument(), self._argument()))
        if name in ("emptyset", "mathbb"):
            return Sym("emptyset") if name == "emptyset" else self._blackboard()
        if name in ("lfloor", "lceil"):
            return self._rounded(name[1:])
        if name == "langle":
            return self._angled()
        if name in DECORATORS:
            return self._decorated(name)
        if name.startswith("begin "):
            return self._matrix(name.removeprefix("begin "))
        raise RefusedError(f"unknown command \\{name}")

    def _symbol(self, name: str) -> Node:
        if self._is_mark("_"):
            self._at += 1
            name += f"_{self._subscript()}"
        name += self._primes()
        if name.rstrip("'") in CALLABLE:
            name += self._marked()
            if self._is_mark("(") and not self._next.spaced:
                inner = self._primary()
                is_tuple = isinstance(inner, Group) and inner.opening == "("
                return App(f"call:{name}", inner.items if is_tuple and isinstance(inner, Group) else (inner,))
        return Sym(name)

    def _primes(self) -> str:
        r"""Primes behind a name, as signs or as `^{\prime\prime}`."""
        primes = ""
        while self._is_mark("'"):
            self._at += 1
            primes += "'"
        values = [token.value for token in self._tokens[self._at : self._at + 5]]
        if values[:2] == ["^", "prime"]:
            self._at += 2
            return primes + "'"
        if values[:3] == ["^", "{", "prime"]:
            count = next((n for n, value in enumerate(values[2:]) if value != "prime"), 0)
            if count and values[2 + count] == "}":
                self._at += 3 + count
                return primes + "'" * count
        return primes

    def _marked(self) -> str:
        r"""The mark of an inverse or a higher derivative, `^{-1}` or `^{(n)}`, when an argument follows it."""
        values = [token.value for token in self._tokens[self._at : self._at + 7]]
        if values[:2] != ["^", "{"]:
            return ""
        for inner in (["-", "1"], ["(", *values[3:4], ")"]):
            end = 2 + len(inner)
            if values[2:end] == inner and values[end : end + 2] == ["}", "("]:
                self._at += end + 1
                return f"^{{{''.join(inner)}}}"
        return ""

    def _argument(self) -> Node:
        """A braced group, or a single digit or token."""
        if self._is_mark("{"):
            return self._primary()
        token = self._next
        if token.kind == "number" and token.value.isdigit():
            self._tokens[self._at : self._at + 1] = [Token("number", digit, token.spaced) for digit in token.value]
            return Num(Fraction(int(self._take().value)))
        return self._primary()

    def _fraction(self) -> Node:
        top = self._argument()
        return App("div", (top, self._argument()))

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
        if base is not None and name != "log":
            raise RefusedError(f"\\{name} with a subscript")
        node = App(name, arguments) if base is None else App("log_base", (*arguments, base))
        return node if exponent is None else App("pow", (node, exponent))

    def _function_arguments(self) -> tuple[Node, ...]:
        if self._is_mark("(", "{", "["):
            inner = self._primary()
            if isinstance(inner, Group) and inner.opening == "[" and len(inner.items) == 1:
                return inner.items
            return inner.items if isinstance(inner, Group | Listing) else (inner,)
        node = self._power()
        while self._starts_factor() and not self._is_mark("(", "[") and self._next.value not in FUNCTIONS:
            node = times(node, self._power())
        return (node,)

    def _blackboard(self) -> Node:
        is_braced = self._is_mark("{")
        self._at += is_braced
        letter = self._take().value
        if is_braced:
            self._skip_mark("}")
        if letter not in SET_SYMBOLS:
            raise RefusedError(f"unknown set {letter!r}")
        name = f"mathbb {letter}"
        for mark in ("^", "_"):
            if self._is_mark(mark):
                self._at += 1
                name += mark + self._subscript()
        return Sym(name)

    def _rounded(self, what: str) -> Node:
        bars, self._bars = self._bars, 0
        node = self._sum()
        if not self._is_command(f"r{what}"):
            raise RefusedError(f"\\l{what} is not closed")
        self._at += 1
        self._bars = bars
        return App(what, (node,))

    def _angled(self) -> Node:
        items = [self._relation()]
        while self._is_mark(",", ";"):
            self._at += 1
            items.append(self._relation())
        if not self._is_command("rangle"):
            raise RefusedError("\\langle is not closed")
        self._at += 1
        return Group("<", ">", tuple(items))

    def _decorated(self, name: str) -> Node:
        """A symbol under a decoration is another symbol, spelt with it."""
        start = self._at
        if self._is_mark("_"):
            self._at += 1
            self._subscript()
        self._argument()
        while name in ("angle", "triangle", "measuredangle") and self._next.kind == "name":
            self._at += 1
        inner = "".join(t.value for t in self._tokens[start : self._at] if t.value not in ("{", "}"))
        return Sym(f"{name} {inner}{self._primes()}")

    def _matrix(self, kind: str) -> Node:
        if kind not in ENVIRONMENTS:
            raise RefusedError(f"unknown environment {kind!r}")
        if kind == "array":  # its column specification
            self._skip_mark("{")
            while not self._is_mark("}"):
                if self._take().kind == "end":
                    raise RefusedError("unfinished array")
            self._at += 1
        bars, self._bars = self._bars, 0
        rows: list[list[Node]] = [[self._sum()]]
        while self._is_mark("&", "\\\\"):
            if self._take().value == "&":
                rows[-1].append(self._sum())
            elif not self._is_command(f"end {kind}"):
                rows.append([self._sum()])
        if not self._is_command(f"end {kind}") or len({len(row) for row in rows}) != 1:
            raise RefusedError("ragged or unfinished matrix")
        self._at += 1
        self._bars = bars
        return Matrix(tuple(tuple(row) for row in rows))
