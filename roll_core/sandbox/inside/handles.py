"""Stand-ins, on the tests' side, for objects of the candidate that are no plain data.

Attributes, calls, length, items, iteration and text go to the candidate's side. What a rigged object could use to make
any test pass is refused and recorded as a fault:

* comparison, ordering, membership, hashing and its own truth value, except that nothing equals None and that objects
  whose class has no `__eq__` are compared by identity: whoever claims that falsely is unequal to all but itself. The
  fields of dataclasses are not compared either, as `P(5)` on the right of `f(1) == P(5)` tells the candidate what its
  earlier object has to say;
* operators with a value of the tests' (which would tell it what is expected), and numbers from operators, as in
  `abs(r * r - 2) < 1e-6`, where an object would compute the check instead of being checked. `v * 3` is refused for the
  same reason: the tests of a number look the same as those of a vector.

What is read in two ways, or twice, has to agree (`reads`).
"""

from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roll_core.sandbox.codec import CodecError, Node
from roll_core.sandbox.inside.abilities import METHODS, OPERATORS
from roll_core.sandbox.inside.asking import ask, exact, length, number_of, plain, unverifiable
from roll_core.sandbox.inside.reading import attribute
from roll_core.sandbox.inside.twins import TEXTS

if TYPE_CHECKING:
    from roll_core.sandbox.inside.link import Link

MAX_TYPES = 1000
MAX_NAME = 80

_MUTABLE: dict[str, type] = {"list": list, "dict": dict, "set": set, "bytearray": bytearray}
_FROZEN: dict[str, type] = {kind.__name__: kind for kind in (int, float, str, bytes, tuple, frozenset, complex)}


class Handle:
    """An object of the candidate's. Subclasses made by `HandleTypes` add what its class can do."""

    __slots__ = ("__weakref__", "_roll_id_", "_roll_link_")

    _roll_base_: type | None = None
    _roll_shown_: type | None = None
    _roll_truth_: str = "always"
    _roll_identity_: bool = False

    _roll_id_: int
    _roll_link_: Link

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_roll_link_", link)
        object.__setattr__(self, "_roll_id_", number)

    @property  # type: ignore[misc]  # `isinstance` asks for it, and nobody sets it
    def __class__(self) -> type:
        return type(self)._roll_shown_ or type(self)

    def __getattr__(self, name: str) -> Any:
        return attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __str__(self) -> str:
        return str(exact(self, "str", str))

    def __repr__(self) -> str:
        return str(exact(self, "repr", str))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __bool__(self) -> bool:
        if self._roll_base_ is not None:
            return bool(plain(self))
        if self._roll_truth_ == "own" or self._roll_id_ in self._roll_link_.reads.derived:
            raise unverifiable(self, "the truth of")
        return self._roll_truth_ == "always" or length(self) > 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if self._roll_base_ is None and (other is None or (self._roll_identity_ and _is_identity(other))):
            return False
        return bool(self._roll_compare_(operator.eq, other, "comparison with"))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        if self._roll_base_ is not None:
            raise TypeError(f"unhashable type: '{self._roll_base_.__name__}'")
        if self._roll_identity_:
            return hash(self._roll_id_)
        raise unverifiable(self, "the hash of")

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
            raise unverifiable(self, what)
        return compare(plain(self), plain(other))

    def __instancecheck__(self, value: Any) -> bool:
        return bool(ask(self, "isinstance", value)) if number_of(value) is not None else False

    def __subclasscheck__(self, value: Any) -> bool:
        return bool(ask(self, "issubclass", value)) if number_of(value) is not None else False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise self._roll_link_.fail("a class that derives from one of the candidate's cannot be verified")

    def __copy__(self) -> Any:
        return ask(self, "copy")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return ask(self, "deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._roll_link_.fail("a pickled object of the candidate's cannot be verified")


def _is_identity(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, Handle) and kind._roll_identity_ and kind._roll_base_ is None


for _name, _operator in OPERATORS.items():
    setattr(Handle, _name, _operator)


class HandleTypes:
    """Makes handles, and the classes they have; one object of the candidate's is one handle while it lives."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._types: dict[tuple[str, frozenset[str], str, bool], type] = {}
        self._living: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()

    def make(self, payload: dict[str, Any], value: Callable[[Node], Any]) -> Any:
        """The stand-in for what a node describes.

        Raises:
            CodecError: it describes nothing of the kind.
        """
        number, name, can, base = (payload.get(key) for key in ("id", "type", "can", "base"))
        identity = payload.get("identity") is True
        if type(number) is not int or type(name) is not str or type(can) is not list:
            raise CodecError("a handle needs id, type and abilities")
        if not set(can) <= METHODS.keys() or (base is not None and base not in _MUTABLE and base not in _FROZEN):
            raise CodecError("a handle of unknown abilities")
        kind = self._type(name[:MAX_NAME], frozenset(can), str(base or ""), identity)
        if base in _FROZEN:
            twin = self._twin(kind, _FROZEN[base], number, value(payload.get("value")))
            object.__setattr__(twin, "_roll_names_", (payload.get("member"), payload.get("fields")))
            return twin
        found = self._living.get(number)
        if found is None or type(found) is not kind:
            found = self._living[number] = kind(self._link, number)
        return found

    def _type(self, name: str, can: frozenset[str], base: str, identity: bool) -> type:
        key = (name, can, base, identity)
        if key not in self._types:
            if len(self._types) >= MAX_TYPES:
                raise CodecError(f"more than {MAX_TYPES} types of objects")
            methods = {method: function for ability in sorted(can) for method, function in METHODS[ability].items()}
            if base in _FROZEN:
                self._types[key] = type(name, (_FROZEN[base],), {**_TWIN, **_of_twin(methods)})
            else:
                self._types[key] = type(
                    name, (Handle,), {"__slots__": (), **methods, **_look(name, can, base, identity)}
                )
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
    "__getattr__": attribute,
    "__setattr__": Handle.__setattr__,
    **TEXTS,
    "_roll_base_": object,
}


def _of_twin(methods: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The methods that a built-in immutable value does not have itself."""
    return {name: methods[name] for name in ("__call__", "__enter__", "__exit__") if name in methods}


def _look(name: str, can: frozenset[str], base: str, identity: bool) -> dict[str, Any]:
    """What `isinstance`, truth and `__doc__` of a handle are to be."""
    shown = _MUTABLE.get(base) or (types.GeneratorType if name == "generator" and "next" in can else None)
    truth = "own" if "bool" in can else "len" if "len" in can else "always"
    return {
        "_roll_base_": _MUTABLE.get(base),
        "_roll_shown_": shown,
        "_roll_truth_": truth,
        "_roll_identity_": identity,
        "__doc__": property(lambda self: ask(self, "attr", "__doc__")),
    }
