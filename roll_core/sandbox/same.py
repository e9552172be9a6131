"""Compare what a candidate returned, still undecoded, with a trusted value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from roll_core.sandbox.codec import MAX_NODES, CodecError, Node, decode, tagged


def same(node: Node, want: Any, *, tolerance: float = 0.0, tuples_as_lists: bool = False) -> bool:
    """Whether a node states the trusted value.

    Nothing of the candidate's is called, hashed in bulk or ordered: its set members and keys are only looked up in the
    trusted container. Types count (True is not 1, a tuple is not a list) except that an int equals a float of the
    same value, NaN equals NaN, and a numpy array or scalar equals the list or number it holds.

    Args:
        node: what came back (`codec.loads`); it may be forged.
        want: trusted plain data.
        tolerance: finite numbers of which one is a float are equal when
            `abs(got - want) <= tolerance * max(1, abs(want))`.
        tuples_as_lists: a tuple equals the list of the same parts (for references that come from JSON).

    Raises:
        TypeError: `want` is not plain data.
    """
    return _Comparison(tolerance, tuples_as_lists).equal(node, want)


class _Comparison:
    def __init__(self, tolerance: float, tuples_as_lists: bool) -> None:
        self._tolerance = tolerance
        self._loose = tuples_as_lists
        self._left = MAX_NODES

    def equal(self, node: Node, want: Any) -> bool:
        self._left -= 1
        if self._left < 0:
            return False
        kind = type(want)
        if type(node) is dict and len(node) == 1 and "N" in node and kind in _IN_ARRAYS:
            content = node["N"]
            return type(content) is list and len(content) == 2 and self.equal(content[1], want)
        compare = _COMPARE.get(kind)
        if compare is None:
            raise TypeError(f"an expected value of type {kind.__name__} is not plain data; give built-in types")
        try:
            return compare(self, node, want)
        except (CodecError, OverflowError):
            return False

    def _identical(self, node: Node, want: Any) -> bool:
        return type(node) is type(want) and bool(node == want)

    def _number(self, node: Node, want: float) -> bool:
        got = decode(node) if type(node) is dict else node
        if type(got) not in (int, float):
            return False
        if got == want or (got != got and want != want):  # noqa: PLR0124  NaN is what differs from itself
            return True
        if float not in (type(got), type(want)) or not (math.isfinite(got) and math.isfinite(want)):
            return False  # whatever is finite lies within a tolerance that is relative to infinity
        return bool(abs(got - want) <= self._tolerance * max(1.0, abs(want)))

    def _parts(self, nodes: Any, wants: Any) -> bool:
        if type(nodes) is not list or len(nodes) != len(wants):
            return False
        return all(self.equal(node, want) for node, want in zip(nodes, wants, strict=True))

    def _list(self, node: Node, want: list[Any]) -> bool:
        if self._loose and type(node) is dict and "T" in node and len(node) == 1:
            return self._parts(node["T"], want)
        return self._parts(node, want)

    def _tuple(self, node: Node, want: tuple[Any, ...]) -> bool:
        if self._loose and type(node) is list:
            return self._parts(node, want)
        tag, payload = tagged(node)
        return tag == "T" and self._parts(payload, want)

    def _set(self, node: Node, want: Any) -> bool:
        tag, payload = tagged(node)
        if tag != ("S" if type(want) is set else "Z") or type(payload) is not list or len(payload) != len(want):
            return False
        left = set(want)
        for part in payload:
            got = _member(part)
            if got not in left:
                return False
            left.remove(got)
        return True

    def _dict(self, node: Node, want: dict[Any, Any]) -> bool:
        tag, payload = tagged(node)
        if tag != "D" or type(payload) is not list or len(payload) != len(want):
            return False
        seen = set()
        for entry in payload:
            if type(entry) is not list or len(entry) != 2:
                return False
            key = _member(entry[0])
            if key not in want or key in seen or not self.equal(entry[1], want[key]):
                return False
            seen.add(key)
        return True

    def _decoded(self, node: Node, want: Any) -> bool:
        got = decode(node)
        return type(got) is type(want) and bool(got == want)


def _member(node: Node) -> Any:
    value = decode(node)
    try:
        hash(value)
    except TypeError as error:
        raise CodecError(str(error)) from error
    return value


_IN_ARRAYS = frozenset({list, tuple, int, float, bool, str, complex})
_COMPARE: dict[type, Callable[[_Comparison, Node, Any], bool]] = {
    type(None): _Comparison._identical,
    bool: _Comparison._identical,
    str: _Comparison._identical,
    int: _Comparison._number,
    float: _Comparison._number,
    list: _Comparison._list,
    tuple: _Comparison._tuple,
    set: _Comparison._set,
    frozenset: _Comparison._set,
    dict: _Comparison._dict,
    bytes: _Comparison._decoded,
    bytearray: _Comparison._decoded,
    complex: _Comparison._decoded,
}
