"""A place in a list of tokens, and the questions a parser asks there."""

from __future__ import annotations

from abc import ABC, abstractmethod

from roll_verifier_math.bounds import RefusedError, TooLargeError
from roll_verifier_math.reading.nodes import Node
from roll_verifier_math.reading.tokens import Token
from roll_verifier_math.reading.vocabulary import RELATIONS, SET_OPERATIONS

MAX_CALLS = 50
"""Nested calls of the parser."""
_ENDS = frozenset(
    ["pm", "mp", "choose", "rfloor", "rceil", "cdot", "times", "div", "ast", "pmod", "rangle", "circ", "prime", "top"]
)


class Cursor(ABC):
    """Walks over tokens that end with an end token."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bars = 0
        """Open bars of absolute values, inside which a bar closes rather than opens."""

    @abstractmethod
    def _listing(self) -> Node: ...

    @abstractmethod
    def _relation(self) -> Node: ...

    @abstractmethod
    def _sum(self) -> Node: ...

    @abstractmethod
    def _power(self) -> Node: ...

    @abstractmethod
    def _exponent(self) -> Node: ...

    @abstractmethod
    def _primary(self) -> Node: ...

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _is_mark(self, *values: str) -> bool:
        token = self._tokens[self._at]
        return token.kind == "mark" and token.value in values

    def _is_command(self, *values: str) -> bool:
        token = self._tokens[self._at]
        return token.kind == "command" and token.value in values

    def _skip_mark(self, value: str) -> None:
        if not self._is_mark(value):
            raise RefusedError(f"expected {value!r}, found {self._next.value!r}")
        self._at += 1

    def expect_end(self) -> None:
        """Refuse whatever is left."""
        if self._next.kind != "end":
            raise RefusedError(f"cannot read on at {self._next.value!r}")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_CALLS:
            raise TooLargeError("nested too deep")

    def _starts_factor(self) -> bool:
        """Whether a factor follows without a sign between; a number never does."""
        token = self._tokens[self._at]
        if token.kind == "name":
            return True
        if token.kind == "mark":
            return token.value in ("(", "[", "{", "\\{") or (token.value == "|" and self._bars == 0)
        if token.kind == "command":
            value = token.value
            return not (value in RELATIONS or value in SET_OPERATIONS or value in _ENDS or value.startswith("end "))
        return False

    def _subscript(self) -> str:
        """The text of a subscript, which is part of a name: a braced group or a single token."""
        if not self._is_mark("{"):
            token = self._take()
            if token.kind == "end":
                raise RefusedError("an empty subscript")
            return token.value
        depth, values = 0, []
        while True:
            token = self._take()
            if token.kind == "end":
                raise RefusedError("an unclosed subscript")
            is_brace = token.kind == "mark" and token.value in ("{", "}")
            depth += (token.value == "{") - (token.value == "}") if is_brace else 0
            if not is_brace:
                values.append(token.value)
            if depth == 0:
                return "".join(values)

    def _plain_fraction_follows(self) -> bool:
        r"""Whether the `\frac` ahead is one of whole numbers, as in a mixed number."""
        values = [token.value for token in self._tokens[self._at + 1 : self._at + 7]] + [""] * 6
        for _ in range(2):
            if values[0] == "{" and values[1].isdigit() and values[2] == "}":
                values = values[3:]
            elif values[0].isdigit():
                values = [values[0][1:], *values[1:]] if len(values[0]) > 1 else values[1:]
            else:
                return False
        return True
