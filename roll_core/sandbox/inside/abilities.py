"""What the class of a stand-in gets: the special methods by ability, and the operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from roll_core.sandbox.inside.asking import ask, exact, length, link_of, number_of, plain, unverifiable
from roll_core.sandbox.inside.reading import advance, item, iterate


def _exit(handle: Any, kind: Any, error: Any, trace: Any) -> bool:
    """Leave a context; the candidate may suppress an exception, but never a failure of the tests' own assertions."""
    return link_of(handle).leave_context(object.__getattribute__(handle, "_roll_id_"), kind, error)


def _enter(handle: Any) -> Any:
    return link_of(handle).enter_context(object.__getattribute__(handle, "_roll_id_"))


def _number(operation: str, kind: type | None) -> Callable[..., Any]:
    """A conversion to a number."""

    def convert(handle: Any, *arguments: Any) -> Any:
        reads, number = link_of(handle).reads, object.__getattribute__(handle, "_roll_id_")
        if number in reads.derived:
            raise unverifiable(handle, f"{operation}() of what an operator made of")

        def convert_there() -> Any:
            return ask(handle, operation, *arguments) if kind is None else exact(handle, operation, kind)

        return reads.once(number, (operation, *arguments), convert_there)

    return convert


METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    "call": {"__call__": lambda self, /, *arguments, **keywords: ask(self, "call", *arguments, **keywords)},
    "iter": {"__iter__": iterate},
    "next": {"__next__": advance},
    "len": {"__len__": length},
    "item": {"__getitem__": item},
    "setitem": {"__setitem__": lambda self, key, value: ask(self, "setitem", key, value)},
    "delitem": {"__delitem__": lambda self, key: ask(self, "delitem", key)},
    "enter": {"__enter__": _enter, "__exit__": _exit},
    "int": {"__int__": _number("int", int)},
    "float": {"__float__": _number("float", float)},
    "index": {"__index__": _number("index", int)},
    "round": {"__round__": _number("round", None)},
    "bool": {},
}


def _binary(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def operate(self: Any, other: Any) -> Any:
        if type(self)._roll_base_ is not None:
            left, right = plain(self), plain(other)
            return function(right, left) if swapped else function(left, right)
        if swapped or number_of(other) is None:
            raise unverifiable(self, f"{name} with a value of the tests and")
        return _derived(self, ask(self, "operate", name, other), name)

    return operate


def _derived(handle: Any, result: Any, name: str) -> Any:
    """The result of an operator, which must be an object again: as a number it would answer for the check."""
    if getattr(type(result), "_roll_base_", object) is not None:
        raise unverifiable(handle, f"a plain result of {name} on")
    link_of(handle).reads.derived.add(object.__getattribute__(result, "_roll_id_"))
    return result


def _unary(name: str) -> Callable[[Any], Any]:
    absolute = _number("operate", None)

    def operate(self: Any) -> Any:
        if name == "abs":
            return absolute(self, name)
        return _derived(self, ask(self, "operate", name), name)

    return operate


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")
OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{name.rstrip('_')}__": _binary(name, swapped=False) for name in _BINARY},
    **{f"__r{name.rstrip('_')}__": _binary(name, swapped=True) for name in _BINARY},
    **{f"__{name}__": _unary(name) for name in ("neg", "pos", "abs", "invert")},
}
"""The operators of every stand-in, by the name of their method."""
