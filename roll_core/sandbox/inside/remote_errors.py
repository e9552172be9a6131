"""Exceptions of the candidate on the tests' side: built-in ones as they are, others as classes that stand for them."""

from __future__ import annotations

import decimal
import json
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from roll_core.sandbox.codec import CodecError, Node
from roll_core.sandbox.inside.values import builtin_exception

if TYPE_CHECKING:
    from roll_core.sandbox.inside.link import Link

MAX_CLASSES = 1000
MAX_DEPTH = 16
MAX_BASES = 8
MAX_NAME = 80

ENDS_LOOPS = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt)
"""Raised out of a call these end a loop of the tests (`all(map(f, xs))`) instead of failing it."""

_LIBRARY: dict[str, type[Exception]] = {
    "JSONDecodeError": json.JSONDecodeError,
    "InvalidOperation": decimal.InvalidOperation,
    "DivisionByZero": decimal.DivisionByZero,
    "Empty": queue.Empty,
    "Full": queue.Full,
}
"""Exceptions of the standard library that tests catch by their own import."""


class RemoteExceptionType(type):
    """The class of classes that stand for exception classes of the candidate's."""

    _roll_link_: Link
    _roll_id_: int

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Make the exception where its class lives."""
        return cls._roll_link_.ask("call", cls._roll_id_, *arguments, **keywords)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls._roll_link_.ask("attr", cls._roll_id_, name)


def _text(error: Any) -> str:
    return str(error.__dict__.get("_roll_text_", ""))


def _attribute(error: Any, name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return type(error)._roll_link_.ask("attr", error.__dict__["_roll_id_"], name)


class RemoteErrors:
    """Makes exceptions and their classes from what the candidate's side says of them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._classes: dict[int, type[BaseException]] = {}

    def class_of(self, node: Node, depth: int = 0) -> type[BaseException]:
        """The class of a node: a built-in one, one of the standard library, or one made to stand for it.

        Raises:
            CodecError: it is none, or there are too many.
        """
        if type(node) is str:
            found = builtin_exception(node)
            if found is None:
                raise CodecError("no such exception")
            return found
        if type(node) is not dict or depth > MAX_DEPTH or len(self._classes) >= MAX_CLASSES:
            raise CodecError("an exception class was expected, not too deep and not too many")
        number, name, bases = node.get("id"), node.get("name"), node.get("bases")
        if type(number) is not int or type(name) is not str or type(bases) is not list or len(bases) > MAX_BASES:
            raise CodecError("an exception class needs id, name and bases")
        if number not in self._classes:
            self._classes[number] = self._make_class(number, name, [self.class_of(base, depth + 1) for base in bases])
        return self._classes[number]

    def _make_class(self, number: int, name: str, bases: list[type[BaseException]]) -> type[BaseException]:
        if name in _LIBRARY and issubclass(_LIBRARY[name], tuple(bases)):
            return _LIBRARY[name]
        namespace = {"_roll_link_": self._link, "_roll_id_": number, "__str__": _text, "__getattr__": _attribute}
        kept = tuple(dict.fromkeys(base for base in bases if not issubclass(base, ENDS_LOOPS))) or (Exception,)
        made: Any
        try:
            made = RemoteExceptionType(name[:MAX_NAME], kept, namespace)
        except TypeError:  # these bases do not go together here
            made = RemoteExceptionType(name[:MAX_NAME], (Exception,), namespace)
        return cast(type[BaseException], made)

    def make(self, payload: dict[str, Any], value: Callable[[Node], Any]) -> BaseException:
        """The exception of a node; one that came from the tests is that very object again.

        Raises:
            CodecError: it is no such node.
        """
        if payload.get("token") is not None:
            original = self._link.shared.get(payload["token"])
            if isinstance(original, BaseException):
                return original
        kind = self.class_of(payload.get("class"))
        arguments = value(payload.get("args"))
        if type(arguments) is not list or type(payload.get("text")) is not str or type(payload.get("id")) is not int:
            raise CodecError("an exception needs args, text and id")
        error = _instance(kind, arguments)
        error.__dict__.update(_roll_id_=payload["id"], _roll_text_=payload["text"], _roll_remote_=True)
        return error


def _instance(kind: type[BaseException], arguments: list[Any]) -> BaseException:
    if not isinstance(kind, RemoteExceptionType):
        try:
            return kind(*arguments)
        except TypeError:  # its constructor takes more than its `args`
            return kind.__new__(kind)
    try:
        return kind.__new__(kind, *arguments)
    except TypeError:
        return kind.__new__(kind)


def is_remote(error: BaseException) -> bool:
    """Whether the candidate raised it."""
    return bool(error.__dict__.get("_roll_remote_"))


def has_crossed(error: BaseException) -> bool:
    """Whether it came out of a request: raised by the candidate, or by the tests in a function that it called."""
    return is_remote(error) or bool(error.__dict__.get("_roll_crossed_"))
