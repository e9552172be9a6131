"""Plain data as JSON and back: what may cross the wall of a jail.

A value becomes a *node*: null, booleans, strings, lists, numbers, and `{tag: payload}` for the rest.
Nothing is ever unpickled, and what comes out has exact built-in types, so no method of the candidate can run outside.
Every number is bounded: bytes, depth, nodes, keys of equal hash. Comparison works on the node itself (`same`).
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

Node = Any
"""What `json` can write: None, bool, int, float, str, list, dict."""

MAX_BYTES = 4 << 20
"""Size of one encoded message."""
MAX_DEPTH = 64
MAX_NODES = 500_000
MAX_EQUAL_HASHES = 64
"""Keys of one set or dict that may share a hash; more is an attack on the hash table."""
ARRAY_KINDS = frozenset("biufcU")
"""Kinds of numpy data that are plain: booleans, integers, floats, complex numbers, text."""
MAX_HEX = 1 << 20
"""Hexadecimal digits of one integer."""

MAX_MARKS = 2 * MAX_NODES
"""Commas and opening brackets of one message, outside its texts: an entry of a dict has three for two parts."""

_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SAFE_INT = 1 << 53
_LENGTH = struct.Struct("<I")


class CodecError(ValueError):
    """A message is no node, or exceeds a bound."""


class UnserialisableError(TypeError):
    """A value is not plain data."""


def pack(node: Node) -> bytes:
    """The node as one frame: four bytes of length, little-endian, and JSON in ASCII.

    Raises:
        CodecError: the frame would exceed `MAX_BYTES`, or a bare float is not finite.
    """
    try:
        data = json.dumps(node, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise CodecError(f"no node: {error}") from error
    if len(data) > MAX_BYTES:
        raise CodecError(f"a message of {len(data)} bytes; at most {MAX_BYTES} may cross")
    return _LENGTH.pack(len(data)) + data


def frame_length(header: bytes) -> int:
    """The length that a frame's first four bytes announce.

    Raises:
        CodecError: it exceeds `MAX_BYTES`.
    """
    length: int = _LENGTH.unpack(header)[0]
    if length > MAX_BYTES:
        raise CodecError(f"a message of {length} bytes was announced; at most {MAX_BYTES} may cross")
    return length


def unpack(data: bytes) -> Iterator[Node]:
    """The nodes of the whole frames at the start of `data`; a rest that is no whole frame ends it.

    Raises:
        CodecError: a frame is too long or holds no JSON.
    """
    start = 0
    while start + _LENGTH.size <= len(data):
        body = start + _LENGTH.size
        end = body + frame_length(data[start:body])
        if end > len(data):
            return
        yield loads(data[body:end])
        start = end


def loads(data: bytes) -> Node:
    """Parse one message; numbers that only a forger writes (huge integers, NaN) are refused.

    The parts are counted before anything is built, as `[[],[],...` takes thirty times its size in memory.

    Raises:
        CodecError: it is too big, or not JSON.
    """
    if len(data) > MAX_BYTES:
        raise CodecError(f"a message of {len(data)} bytes; at most {MAX_BYTES} may cross")
    marks = _marks(data)
    if marks > MAX_MARKS and marks - sum(_marks(text[0]) for text in _TEXT.finditer(data)) > MAX_MARKS:
        raise CodecError(f"a message of more than {MAX_NODES} parts")
    try:
        return json.loads(data.decode("utf-8"), parse_int=_bounded_int, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not a message: {str(error)[:200]}") from error


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _bounded_int(digits: str) -> int:
    if len(digits) > 20:
        raise CodecError("an integer of more than 20 decimal digits")
    return int(digits)


def _no_constant(name: str) -> float:
    raise CodecError(f"{name} is not plain JSON")


OtherEncoder = Callable[[Any, Callable[[Any], Node]], Node]
"""Called with a value that is no exact built-in type, and with the function that encodes its parts."""


def encode(value: Any, other: OtherEncoder | None = None) -> Node:
    """Turn a value into a node.

    Exact built-in types are kept apart (tuple from list, bool from int). Without `other`, subclasses of built-in types
    become their base (an `OrderedDict` a dict), numpy arrays and scalars become tagged lists and numbers.

    Args:
        value: any object.
        other: makes the node of everything that is not of an exact built-in type.

    Raises:
        UnserialisableError: something in it is not plain data.
        CodecError: it is too deep or too large.
    """
    return _Encoder(other).node(value, 0)


class _Encoder:
    def __init__(self, other: OtherEncoder | None) -> None:
        self._other = other or _encode_other
        self._left = MAX_NODES

    def node(self, value: Any, depth: int) -> Node:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise CodecError(f"a value deeper than {MAX_DEPTH} or of more than {MAX_NODES} parts")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        encoder = _ENCODERS.get(kind, self._other)
        return encoder(value, lambda part: self.node(part, depth + 1))


def _encode_other(value: Any, node: Callable[[Any], Node]) -> Node:
    if is_array(value):
        return {"N": [value.dtype.str, node(value.tolist())]}
    return node(flatten(value))


def _parts(tag: str) -> OtherEncoder:
    return lambda value, node: {tag: [node(part) for part in value]}


_ENCODERS: dict[type, OtherEncoder] = {
    int: lambda value, _: value if -_SAFE_INT < value < _SAFE_INT else {"I": f"{value:x}"},
    float: lambda value, _: value if value - value == 0 else {"F": repr(value)},
    list: lambda value, node: [node(part) for part in value],
    tuple: _parts("T"),
    set: _parts("S"),
    frozenset: _parts("Z"),
    dict: lambda value, node: {"D": [[node(key), node(part)] for key, part in value.items()]},
    bytes: lambda value, _: {"B": value.hex()},
    bytearray: lambda value, _: {"A": value.hex()},
    complex: lambda value, node: {"C": [node(value.real), node(value.imag)]},
}


def is_array(value: Any) -> bool:
    """Whether it is a numpy array or scalar of numbers, booleans or text (numpy itself need not be installed)."""
    return type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in ARRAY_KINDS


def flatten(value: Any) -> Any:
    """An instance of a subclass of a built-in type as the built-in value it holds, whatever its own methods say.

    Raises:
        UnserialisableError: its class derives from no plain built-in type.
    """
    for base, convert in _FLATTEN:
        if isinstance(value, base):
            return convert(value)
    raise UnserialisableError(f"an object of type {type(value).__name__} is not plain data")


_FLATTEN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__index__),
    (float, float.__float__),
    (str, lambda value: "".join(str.__iter__(value))),
    (bytes, lambda value: bytes(bytes.__iter__(value))),
    (bytearray, lambda value: bytearray(bytearray.__iter__(value))),
    (complex, lambda value: complex(complex.real.__get__(value), complex.imag.__get__(value))),
    (list, lambda value: [*list.__iter__(value)]),
    (tuple, lambda value: (*tuple.__iter__(value),)),
    (dict, lambda value: dict(dict.items(value))),
    (set, lambda value: {*set.__iter__(value)}),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
)

OtherDecoder = Callable[[str, Any, Callable[[Node], Any]], Any]
"""Called with a tag that is not of the plain ones, its payload, and the function that decodes parts."""


def decode(node: Node, other: OtherDecoder | None = None) -> Any:
    """Turn a node into a value of exact built-in types.

    Args:
        node: what `loads` gave; it may come from a forger.
        other: decodes further tags and arrays (tag "N"); without it arrays become lists and other tags are refused.

    Raises:
        CodecError: it is no node, exceeds a bound, or floods a hash table.
    """
    return _Decoder(other).value(node, 0)


class _Decoder:
    def __init__(self, other: OtherDecoder | None) -> None:
        self._other = other
        self._left = MAX_NODES

    def value(self, node: Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise CodecError(f"a message deeper than {MAX_DEPTH} or of more than {MAX_NODES} parts")
        if node is None or type(node) in _SCALARS:
            return node
        if type(node) is list:
            return [self.value(part, depth + 1) for part in node]
        tag, payload = tagged(node)
        try:
            return self._tagged(tag, payload, lambda part: self.value(part, depth + 1))
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            if isinstance(error, CodecError):
                raise
            raise CodecError(f"{tag[:20]}: {str(error)[:200]}") from error

    def _tagged(self, tag: str, payload: Any, value: Callable[[Node], Any]) -> Any:
        if self._other is not None and tag not in _PLAIN_TAGS:
            return self._other(tag, payload, value)
        if tag == "N":
            _, content = pair(payload)
            return value(content)
        if tag == "D":
            pairs = [pair(entry) for entry in _list(payload)]
            keys = checked_keys([value(key) for key, _ in pairs])
            return dict(zip(keys, [value(part) for _, part in pairs], strict=True))
        if tag in _SEQUENCES:
            parts = [value(part) for part in _list(payload)]
            return _SEQUENCES[tag](parts)
        if tag == "C":
            real, imag = (value(part) for part in pair(payload))
            return complex(_float(real), _float(imag))
        if tag in _TEXTS and type(payload) is str:
            return _TEXTS[tag](payload)
        raise CodecError(f"no such tag: {tag[:20]!r}")


def _list(payload: Any) -> list[Any]:
    if type(payload) is not list:
        raise CodecError("a list was expected")
    return payload


def pair(payload: Any) -> tuple[Any, Any]:
    """The two parts of a list of two.

    Raises:
        CodecError: it is none.
    """
    if type(payload) is not list or len(payload) != 2:
        raise CodecError("a list of two was expected")
    return payload[0], payload[1]


def _refuse(message: str) -> Any:
    raise CodecError(message)


def _float(value: Any) -> float:
    return float(value) if type(value) in (int, float) else _refuse("a number was expected")


def tagged(node: Node) -> tuple[str, Any]:
    """Tag and payload of an object node.

    Raises:
        CodecError: it is none.
    """
    if type(node) is not dict or len(node) != 1:
        raise CodecError("an object of one tag was expected")
    return next(iter(node.items()))


def checked_keys(keys: list[Any]) -> list[Any]:
    """The keys of a set or dict from outside, after looking for a flood of equal hashes.

    Raises:
        CodecError: more than `MAX_EQUAL_HASHES` of them share one hash.
        TypeError: one is not hashable.
    """
    most = Counter([hash(key) for key in keys]).most_common(1)
    if most and most[0][1] > MAX_EQUAL_HASHES:
        raise CodecError(f"{most[0][1]} keys share one hash")
    return keys


def _hex_int(digits: str) -> int:
    return int(digits, 16) if len(digits) <= MAX_HEX else _refuse(f"an integer of more than {MAX_HEX} hex digits")


def _special_float(name: str) -> float:
    return float(name) if name in ("nan", "inf", "-inf") else _refuse("no such float")


_SCALARS = frozenset({bool, int, float, str})
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "T": tuple,
    "S": lambda parts: set(checked_keys(parts)),
    "Z": lambda parts: frozenset(checked_keys(parts)),
}
_TEXTS: dict[str, Callable[[str], Any]] = {
    "I": _hex_int,
    "F": _special_float,
    "B": bytes.fromhex,
    "A": bytearray.fromhex,
}
_PLAIN_TAGS = frozenset({"D", "C", *_SEQUENCES, *_TEXTS})
