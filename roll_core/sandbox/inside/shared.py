"""What the tests hand to the candidate: plain data as it is, anything else under a number and for a few uses only.

The candidate can call functions, advance iterators, and read and set public attributes of instances of classes that the
tests define. It never sees such an object, so nothing leads from it to the tests' variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from roll_core.sandbox.codec import CodecError, Node, UnserialisableError
from roll_core.sandbox.inside.asking import number_of
from roll_core.sandbox.inside.guards import may_be_lent
from roll_core.sandbox.inside.references import FROZEN, MUTABLE
from roll_core.sandbox.inside.values import builtin_exception, encode_value

_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_TESTS = "__main__"
"""The module that classes of the tests belong to."""


class Shared:
    """The objects that were handed over, by number."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def get(self, number: Any) -> Any:
        """What was handed over under that number.

        Raises:
            CodecError: nothing was.
        """
        if type(number) is not int or not 0 <= number < len(self._objects):
            raise CodecError("a number under which nothing was handed over")
        return self._objects[number]

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def encode(self, value: Any, node: Callable[[Any], Node]) -> Node:
        """The node of what is no exact built-in value.

        Raises:
            UnserialisableError: it cannot cross.
        """
        number = number_of(value)
        if number is not None:
            return {"H": number}
        known = encode_value(value, node)
        if known is not None:
            return known
        if isinstance(value, BaseException):
            return self._error(value, node)
        return node([*value]) if isinstance(value, _VIEWS) else self._object(value)

    def _object(self, value: Any) -> Node:
        kind = type(value)
        name = str(getattr(value, "__name__", kind.__name__))
        if issubclass(kind, type) and builtin_exception(name) is value:
            return {"X": name}
        if isinstance(value, Iterator):
            return {"Y": self._number(value)}
        if callable(value):
            if not may_be_lent(value):
                raise UnserialisableError(f"{name.lstrip('_')}, with which it could run code beside the tests")
            doc = getattr(value, "__doc__", None)
            return {"K": {"id": self._number(value), "name": name, "doc": doc if type(doc) is str else None}}
        if kind.__module__ == _TESTS and not issubclass(kind, (*FROZEN, *MUTABLE)):
            return {"R": {"id": self._number(value), "type": kind.__name__}}
        raise UnserialisableError(f"an object of type {kind.__name__}")

    def _error(self, error: BaseException, node: Callable[[Any], Node]) -> Node:
        name = next(kind.__name__ for kind in type(error).__mro__ if builtin_exception(kind.__name__) is kind)
        try:
            arguments = node(list(error.args))
        except UnserialisableError:
            arguments = node([str(error)])
        return {"E": {"name": name, "args": arguments, "token": self._number(error)}}

    def operation(self, name: Any, number: Any, arguments: list[Any], keywords: dict[str, Any]) -> Callable[[], Any]:
        """What the candidate asks for, to be called.

        Raises:
            CodecError: it is not one of the few uses.
        """
        value = self.get(number)
        if name == "call" and callable(value):
            return lambda: value(*arguments, **keywords)
        if name == "next" and isinstance(value, Iterator):
            return lambda: next(value)
        if type(value).__module__ == _TESTS and arguments and _is_public(arguments[0]):
            if name == "attr":
                return lambda: getattr(value, arguments[0])
            if name == "setattr" and len(arguments) == 2 and _is_data(value, arguments[0]):
                return lambda: setattr(value, arguments[0], arguments[1])
        raise CodecError("no such use of what was handed over")


def _is_public(name: Any) -> bool:
    return type(name) is str and not name.startswith("_")


def _is_data(value: Any, name: str) -> bool:
    """Whether setting the attribute changes data of the object, not what its class does."""
    return not callable(getattr(type(value), name, None))
