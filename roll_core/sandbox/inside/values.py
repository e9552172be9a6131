"""Standard-library value types that cross between the two jails of a test as themselves, by a fixed table.

Both sides build them anew from plain parts, so what the tests compare has exactly these types.
"""

from __future__ import annotations

import builtins
import importlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import EllipsisType, NoneType
from typing import Any

from roll_core.sandbox.codec import ARRAY_KINDS, CodecError, Node, is_array, pair

PLAIN_CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, object, NoneType)
}
"""Built-in classes that cross by name."""

_FACTORIES = {name: PLAIN_CLASSES[name] for name in ("int", "float", "str", "list", "dict", "set", "bool", "tuple")}


def _factory_name(value: defaultdict[Any, Any]) -> str | None:
    name = getattr(value.default_factory, "__name__", None)
    return name if _FACTORIES.get(str(name)) is value.default_factory else None


def _default_dict(parts: list[Any]) -> defaultdict[Any, Any]:
    name, items = parts
    return defaultdict(None if name is None else _FACTORIES[name], items)


_VALUES: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    range: (lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    slice: (lambda value: [value.start, value.stop, value.step], lambda parts: slice(*parts)),
    Fraction: (lambda value: [value.numerator, value.denominator], lambda parts: Fraction(*parts)),
    Decimal: (str, Decimal),
    deque: (lambda value: [list(value), value.maxlen], lambda parts: deque(*parts)),
    OrderedDict: (lambda value: [list(item) for item in value.items()], OrderedDict),
    Counter: (dict, Counter),
    defaultdict: (lambda value: [_factory_name(value), dict(value)], _default_dict),
    date: (date.isoformat, date.fromisoformat),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda parts: timedelta(*parts)),
    EllipsisType: (lambda _: None, lambda _: ...),
}
_NAMES = {kind.__name__: kind for kind in _VALUES}


def encode_value(value: Any, node: Callable[[Any], Node]) -> Node | None:
    """The node of a value of the table, of a numpy array, or of a built-in class; None where it is none of these."""
    kind = type(value)
    if kind in _VALUES:
        return {"V": [kind.__name__, node(_VALUES[kind][0](value))]}
    name = value.__name__ if kind is type else ""
    if PLAIN_CLASSES.get(name) is value:
        return {"V": ["type", name]}
    if is_array(value):
        return {"N": [value.dtype.str, node(value.tolist())]}
    return None


def decode_value(tag: str, payload: Any, value: Callable[[Node], Any]) -> Any:
    """The value of a "V" or "N" node.

    Raises:
        CodecError: there is no such tag or type.
        TypeError: the parts do not fit the type.
        ValueError: as above.
    """
    name, content = pair(payload)
    if type(name) is not str:
        raise CodecError("a type's name was expected")
    if tag == "N":
        return _array(name, value(content))
    if tag == "V" and name == "type":
        return PLAIN_CLASSES[content]
    if tag == "V" and name in _NAMES:
        return _VALUES[_NAMES[name]][1](value(content))
    raise CodecError(f"no such value: {tag[:20]!r} {name[:40]!r}")


def _array(dtype: str, content: Any) -> Any:
    """A numpy array or scalar where numpy is there, else the lists and numbers that it holds."""
    if len(dtype) < 2 or dtype[0] not in "<>|=" or dtype[1] not in ARRAY_KINDS or not dtype[2:].isdigit():
        raise CodecError("no such array type")
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return content
    return numpy.array(content, dtype=dtype)[()]


def builtin_exception(name: str) -> type[BaseException] | None:
    """The built-in exception class of that name, if there is one."""
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
