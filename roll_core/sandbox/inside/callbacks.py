"""Functions, iterators and objects of the tests, as the candidate gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CallBack = Callable[[int, str, tuple[Any, ...], dict[str, Any]], Any]
"""Does one operation on the tests' side: number of the function, operation, arguments."""


class Callback:
    """A function of the tests: calling it is all that the candidate can do with it."""

    def __init__(self, call_back: CallBack, number: int, name: str, doc: str | None) -> None:
        self.number = number
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._call_back = call_back

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function of the tests."""
        return self._call_back(self.number, "call", arguments, keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function where the candidate keeps it on a class."""
        if instance is None:
            return self
        return lambda *arguments, **keywords: self(instance, *arguments, **keywords)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callback) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


class CallbackIterator:
    """An iterator of the tests."""

    def __init__(self, call_back: CallBack, number: int) -> None:
        self.number = number
        self._call_back = call_back

    def __iter__(self) -> CallbackIterator:
        return self

    def __next__(self) -> Any:
        return self._call_back(self.number, "next", (), {})


class TestObject:
    """An instance of a class that the tests define: the candidate can read and set its public attributes."""

    __test__ = False  # not a test class for pytest
    __slots__ = ("_call_back", "_number", "_type")

    _call_back: CallBack
    _number: int
    _type: str

    def __init__(self, call_back: CallBack, number: int, type_name: str) -> None:
        for name, value in (("_call_back", call_back), ("_number", number), ("_type", type_name)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{self._type}' object has no attribute '{name}'")
        return self._call_back(self._number, "attr", (name,), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self._call_back(self._number, "setattr", (name, value), {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TestObject) and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return f"<{self._type} of the tests>"
