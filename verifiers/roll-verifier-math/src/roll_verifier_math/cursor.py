"""A place in a list of tokens, and the questions a parser asks there."""

from __future__ import annotations

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.tokens import Token


class Cursor:
    """Walks over tokens that end with an end token."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _is_mark(self, *values: str) -> bool:
        return self._next.kind == "mark" and self._next.value in values

    def _is_command(self, *values: str) -> bool:
        return self._next.kind == "command" and self._next.value in values

    def _skip_mark(self, value: str) -> None:
        if not self._is_mark(value):
            raise RefusedError(f"expected {value!r}, found {self._next.value!r}")
        self._at += 1

    def expect_end(self) -> None:
        """Refuse whatever is left."""
        if self._next.kind != "end":
            raise RefusedError(f"cannot read on at {self._next.value!r}")

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
