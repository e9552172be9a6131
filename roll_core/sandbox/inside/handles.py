"""Stand-ins, on the tests' side, for objects of the candidate that are no plain data.

Attributes, calls, length, items, iteration and text go to the candidate's side. What a rigged object could use to make
any test pass is refused and recorded as a fault: comparison, ordering, membership, hashing, its own truth value, and
operators with a value of the tests' (which would tell it what is expected).
"""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from roll_core.sandbox.codec import CodecError, Node

if TYPE_CHECKING:
    from roll_core.sandbox.inside.link import Link

MAX_TYPES = 1000
MAX_NAME = 80

_MUTABLE: dict[str, type] = {"list": list, "dict": dict, "set": set, "bytearray": bytearray}
_FROZEN: dict[str, type] = {kind.__name__: kind for kind in (int, float, str, bytes, tuple, frozenset, complex)}
_PREDICATES = frozenset({"startswith", "endswith", "issubset", "issuperset", "isdisjoint"})
"""Methods of plain types that say whether a value is the expected one."""


def number_of(value: Any) -> int | None:
    """The number of the candidate's object that a value stands for, or None."""
    kind = type(value)
    try:
        getter = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
        number = getter(value, "_roll_id_")
    except AttributeError:
        return None
    return number if type(number) is int else None


class Handle:
    """An object of the candidate's. Subclasses made by `HandleTypes` add what its class can do."""

    __slots__ = ("__weakref__", "_roll_id_", "_roll_link_")

    _roll_base_: type | None = None
    _roll_shown_: type | None = None
    _roll_truth_: str = "always"

    _roll_id_: int
    _roll_link_: Link

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_roll_link_", link)
        object.__setattr__(self, "_roll_id_", number)

    @property  # type: ignore[misc]  # `isinstance` asks for it, and nobody sets it
    def __class__(self) -> type:
        return type(self)._roll_shown_ or type(self)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "delattr", name)

    def __str__(self) -> str:
        return str(_exact(self, "str", str))

    def __repr__(self) -> str:
        return str(_exact(self, "repr", str))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __bool__(self) -> bool:
        if self._roll_base_ is not None:
            return bool(_plain(self))
        if self._roll_truth_ == "own":
            raise _unverifiable(self, "the truth of")
        return self._roll_truth_ == "always" or _exact(self, "len", int) > 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return bool(self._roll_compare_(operator.eq, other, "comparison with"))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if self._roll_base_ is not None:
            raise TypeError(f"unhashable type: '{self._roll_base_.__name__}'")
        raise _unverifiable(self, "the hash of")

    def __lt__(self, other: Any) -> bool:
        return bool(self._roll_compare_(operator.lt, other, "ordering of"))

    def __le__(self, other: Any) -> bool:
        return bool(self._roll_compare_(operator.le, other, "ordering of"))

    def __gt__(self, other: Any) -> bool:
        return bool(self._roll_compare_(operator.gt, other, "ordering of"))

    def __ge__(self, other: Any) -> bool:
        return bool(self._roll_compare_(operator.ge, other, "ordering of"))

    def __contains__(self, item: Any) -> bool:
        return bool(self._roll_compare_(operator.contains, item, "membership in"))

    def _roll_compare_(self, compare: Callable[[Any, Any], Any], other: Any, what: str) -> Any:
        """Compare as plain data, which only an instance of a built-in container's subclass can be read as."""
        if self._roll_base_ is None:
            raise _unverifiable(self, what)
        return compare(_plain(self), _plain(other))

    def __instancecheck__(self, value: Any) -> bool:
        return bool(_ask(self, "isinstance", value)) if number_of(value) is not None else False

    def __subclasscheck__(self, value: Any) -> bool:
        return bool(_ask(self, "issubclass", value)) if number_of(value) is not None else False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise self._roll_link_.fail("a class that derives from one of the candidate's cannot be verified")

    def __copy__(self) -> Any:
        return _ask(self, "copy")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _ask(self, "deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._roll_link_.fail("a pickled object of the candidate's cannot be verified")


def _link_of(value: Any) -> Link:
    link: Link = object.__getattribute__(value, "_roll_link_")
    return link


def _ask(value: Any, operation: str, *arguments: Any, **keywords: Any) -> Any:
    return _link_of(value).ask(operation, object.__getattribute__(value, "_roll_id_"), *arguments, **keywords)


def _attribute(value: Any, name: str) -> Any:
    if name.startswith("_roll_"):
        raise AttributeError(name)
    if name in _PREDICATES:
        if type(value)._roll_base_ is None:
            raise _unverifiable(value, f"{name}() of")
        return getattr(_plain(value), name)
    return _ask(value, "attr", name)


def _exact(value: Any, operation: str, kind: type) -> Any:
    result = _ask(value, operation)
    if type(result) is not kind:
        raise _link_of(value).fail(f"{operation}() of an object of the candidate's gave no plain {kind.__name__}")
    return result


def _plain(value: Any) -> Any:
    """The plain contents of an instance of a built-in container's subclass; any other value as it is."""
    base = getattr(type(value), "_roll_base_", None)
    if base is None or not issubclass(type(value), Handle):
        return value
    contents = _ask(value, "plain")
    if type(contents) is not base:
        raise _link_of(value).fail(f"the contents of a {base.__name__} of the candidate's are none")
    return contents


def _unverifiable(value: Any, what: str) -> BaseException:
    name = type(value).__name__
    return _link_of(value).fail(f"{what} an object of the candidate's class {name} cannot be verified")


def _length(handle: Handle) -> int:
    length: int = _exact(handle, "len", int)
    if length < 0:
        raise _link_of(handle).fail("a negative length")
    return length


def _iterate(handle: Handle) -> Any:
    iterator = _ask(handle, "iter")
    if not hasattr(type(iterator), "__next__"):
        raise _link_of(handle).fail("iter() gave no iterator")
    return _counted(handle, iterator) if hasattr(type(handle), "__len__") else iterator


def _counted(handle: Handle, iterator: Iterator[Any]) -> Iterator[Any]:
    """The parts, of which there must be as many as the length says, or a rigged object passes a `zip` with nothing."""
    count = 0
    for part in iterator:
        count += 1
        yield part
    if count != _length(handle):
        raise _link_of(handle).fail(f"an object of length {_length(handle)} gave {count} parts")


def _exit(handle: Handle, kind: Any, error: Any, trace: Any) -> bool:
    """Leave a context; the candidate may suppress an exception, but never a failure of the tests' own assertions."""
    return _link_of(handle).leave_context(object.__getattribute__(handle, "_roll_id_"), kind, error)


def _enter(handle: Handle) -> Any:
    return _link_of(handle).enter_context(object.__getattribute__(handle, "_roll_id_"))


_METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    "call": {"__call__": lambda self, /, *arguments, **keywords: _ask(self, "call", *arguments, **keywords)},
    "iter": {"__iter__": _iterate},
    "next": {"__next__": lambda self: _ask(self, "next")},
    "len": {"__len__": _length},
    "item": {"__getitem__": lambda self, key: _ask(self, "item", key)},
    "setitem": {"__setitem__": lambda self, key, value: _ask(self, "setitem", key, value)},
    "delitem": {"__delitem__": lambda self, key: _ask(self, "delitem", key)},
    "enter": {"__enter__": _enter, "__exit__": _exit},
    "int": {"__int__": lambda self: _exact(self, "int", int)},
    "float": {"__float__": lambda self: _exact(self, "float", float)},
    "index": {"__index__": lambda self: _exact(self, "index", int)},
    "round": {"__round__": lambda self, *digits: _ask(self, "round", *digits)},
    "bool": {},
}


def _binary(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def operate(self: Handle, other: Any) -> Any:
        if self._roll_base_ is not None:
            left, right = _plain(self), _plain(other)
            return function(right, left) if swapped else function(left, right)
        if swapped or number_of(other) is None:
            raise _unverifiable(self, f"{name} with a value of the tests and")
        return _ask(self, "operate", name, other)

    return operate


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: _ask(self, "operate", name)


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")
for _name in _BINARY:
    setattr(Handle, f"__{_name.rstrip('_')}__", _binary(_name, swapped=False))
    setattr(Handle, f"__r{_name.rstrip('_')}__", _binary(_name, swapped=True))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Handle, f"__{_name}__", _unary(_name))


class HandleTypes:
    """Makes handles, and the classes they have; one object of the candidate's is one handle while it lives."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._types: dict[tuple[str, frozenset[str], str], type] = {}
        self._living: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()

    def make(self, payload: dict[str, Any], value: Callable[[Node], Any]) -> Any:
        """The stand-in for what a node describes.

        Raises:
            CodecError: it describes nothing of the kind.
        """
        number, name, can, base = (payload.get(key) for key in ("id", "type", "can", "base"))
        if type(number) is not int or type(name) is not str or type(can) is not list:
            raise CodecError("a handle needs id, type and abilities")
        if not set(can) <= _METHODS.keys() or (base is not None and base not in _MUTABLE and base not in _FROZEN):
            raise CodecError("a handle of unknown abilities")
        kind = self._type(name[:MAX_NAME], frozenset(can), str(base or ""))
        if base in _FROZEN:
            return self._twin(kind, _FROZEN[base], number, value(payload.get("value")))
        found = self._living.get(number)
        if found is None or type(found) is not kind:
            found = self._living[number] = kind(self._link, number)
        return found

    def _type(self, name: str, can: frozenset[str], base: str) -> type:
        key = (name, can, base)
        if key not in self._types:
            if len(self._types) >= MAX_TYPES:
                raise CodecError(f"more than {MAX_TYPES} types of objects")
            methods = {method: function for ability in sorted(can) for method, function in _METHODS[ability].items()}
            if base in _FROZEN:
                self._types[key] = type(name, (_FROZEN[base],), {**_TWIN, **_of_twin(methods)})
            else:
                self._types[key] = type(name, (Handle,), {"__slots__": (), **methods, **_look(name, can, base)})
        return self._types[key]

    def _twin(self, kind: type, base: type, number: int, contents: Any) -> Any:
        """An immutable value of the candidate's subclass: real contents here, further attributes over there."""
        if type(contents) is not base:
            raise CodecError(f"a value of {base.__name__} was expected")
        make: Any = base.__new__
        twin = make(kind, contents)
        object.__setattr__(twin, "_roll_link_", self._link)
        object.__setattr__(twin, "_roll_id_", number)
        return twin


_TWIN: dict[str, Any] = {
    "__getattr__": _attribute,
    "__setattr__": Handle.__setattr__,
    "__str__": Handle.__str__,
    "__repr__": Handle.__repr__,
    "_roll_base_": object,
}


def _of_twin(methods: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The methods that a built-in immutable value does not have itself."""
    return {name: methods[name] for name in ("__call__", "__enter__", "__exit__") if name in methods}


def _look(name: str, can: frozenset[str], base: str) -> dict[str, Any]:
    """What `isinstance`, truth and `__doc__` of a handle are to be."""
    shown = _MUTABLE.get(base) or (types.GeneratorType if name == "generator" and "next" in can else None)
    truth = "own" if "bool" in can else "len" if "len" in can else "always"
    return {
        "_roll_base_": _MUTABLE.get(base),
        "_roll_shown_": shown,
        "_roll_truth_": truth,
        "__doc__": property(lambda self: _ask(self, "attr", "__doc__")),
    }
