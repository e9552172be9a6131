"""Numbers for the candidate's objects, and what the tests' side has to know to stand in for each."""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from typing import Any

from roll_core.sandbox.codec import Node, flatten
from roll_core.sandbox.inside.callbacks import Callback, CallbackIterator, TestObject
from roll_core.sandbox.inside.calls import describe
from roll_core.sandbox.inside.values import builtin_exception, encode_value

ABILITIES: dict[str, str] = {
    "iter": "__iter__",
    "next": "__next__",
    "len": "__len__",
    "item": "__getitem__",
    "setitem": "__setitem__",
    "delitem": "__delitem__",
    "enter": "__enter__",
    "int": "__int__",
    "float": "__float__",
    "index": "__index__",
    "round": "__round__",
    "bool": "__bool__",
}
"""What an object can do, by the special method that its class has for it."""

FROZEN: tuple[type, ...] = (int, float, str, bytes, tuple, frozenset, complex)
MUTABLE: tuple[type, ...] = (list, dict, set, bytearray)

MAX_BASES = 8

_IDENTITY: Any = object.__eq__


class References:
    """The objects that the tests' side knows by number. They stay alive, so that a number means one object."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def get(self, number: int) -> Any:
        """The object of that number."""
        return self._objects[number]

    def number(self, value: Any) -> int:
        """The number of an object."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def encode(self, value: Any, node: Callable[[Any], Node]) -> Node:
        """The node of an object that is no exact built-in value."""
        known = encode_value(value, node)
        if known is not None:
            return known
        kind = type(value)
        if issubclass(kind, type) and issubclass(value, BaseException):
            return {"X": self._exception_class(value)}
        if issubclass(kind, BaseException):
            return {"E": self._exception(value, node)}
        described = _DESCRIBED.get(kind)
        return {"H": self._handle(value, node)} if described is None else described(self, value)

    def _handle(self, value: Any, node: Callable[[Any], Node]) -> dict[str, Node]:
        kind = type(value)
        can = [name for name, method in ABILITIES.items() if getattr(kind, method, None) is not None]
        if callable(value):
            can.append("call")
        if kind is type and hasattr(value, "__class_getitem__"):
            can.append("item")
        handle: dict[str, Node] = {"id": self.number(value), "type": kind.__name__, "can": can}
        if getattr(kind, "__eq__", None) is _IDENTITY:
            handle["identity"] = True
        base = next((base for base in (*FROZEN, *MUTABLE) if issubclass(kind, base)), None)
        if base is not None:
            handle["base"] = base.__name__
            if base in FROZEN:
                handle["value"] = node(flatten(value))
            if issubclass(kind, Enum):
                handle["member"] = str(value.name)
            elif base is tuple and hasattr(kind, "_fields"):
                handle["fields"] = [str(name) for name in kind._fields]
        return handle

    def _exception(self, value: BaseException, node: Callable[[Any], Node]) -> dict[str, Node]:
        try:
            arguments = node(list(value.args))
        except (TypeError, ValueError):
            arguments = []
        return {
            "class": self._exception_class(type(value)),
            "args": arguments,
            "text": describe(value)[1],
            "id": self.number(value),
            "token": value.__dict__.get("raised_by_tests"),
        }

    def _exception_class(self, kind: type[BaseException]) -> Node:
        """A built-in class by its name; another by its number, name and bases."""
        if builtin_exception(kind.__name__) is kind:
            return kind.__name__
        bases = [base for base in kind.__bases__ if issubclass(base, BaseException)][:MAX_BASES]
        return {
            "id": self.number(kind),
            "name": kind.__name__,
            "bases": [self._exception_class(base) for base in bases],
        }


_DESCRIBED: dict[type, Callable[[References, Any], Node]] = {
    Callback: lambda _, value: {"K": value.number},
    CallbackIterator: lambda _, value: {"K": value.number},
    TestObject: lambda _, value: {"K": value._number},
    types.CoroutineType: lambda references, value: {"W": references.number(value)},
}
