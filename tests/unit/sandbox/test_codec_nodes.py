from __future__ import annotations

import json
import struct
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.sandbox.codec import (
    MAX_BYTES,
    MAX_DEPTH,
    CodecError,
    UnserialisableError,
    decode,
    encode,
    flatten,
    loads,
    pack,
    unpack,
)
from roll_core.sandbox.same import same

hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4),
    max_leaves=8,
)
plain = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.sets(hashable, max_size=4)
        | st.binary().map(bytearray)
    ),
    max_leaves=20,
)


def shape(value):
    """Type and content, so that 1, 1.0 and True differ, as do 0.0 and -0.0."""
    if type(value) in (list, tuple):
        return type(value), [shape(part) for part in value]
    if type(value) is dict:
        return dict, [(shape(key), shape(part)) for key, part in value.items()]
    if type(value) in (set, frozenset):
        return type(value), sorted(repr(shape(part)) for part in value)
    return type(value), repr(value)


@settings(max_examples=150, deadline=None)
@given(plain)
def test_plain_data_comes_back_with_exact_types(value):
    (node,) = unpack(pack(encode(value)))
    assert shape(decode(node)) == shape(value)
    assert same(node, value)


@settings(max_examples=150, deadline=None)
@given(plain, plain)
def test_same_agrees_with_equality_of_values_and_types(got, want):
    assert same(encode(want), want)
    if shape(got) != shape(want) and got != want:
        assert not same(encode(got), want)


def test_not_a_number_equals_itself_only():
    node = encode(float("nan"))
    assert same(node, float("nan"))
    assert not same(node, 1.0)
    assert not same(encode(1.0), float("nan"))


def test_types_count():
    assert not same(encode(True), 1)
    assert not same(encode(1), True)
    assert not same(encode((1,)), [1])
    assert not same(encode([1]), (1,))
    assert not same(encode("1"), 1)
    assert not same(encode({1}), frozenset({1}))
    assert not same(encode(b"a"), "a")
    assert not same(encode(None), False)
    assert same(encode(3), 3.0)
    assert same(encode(2.0), 2)
    assert same(encode((1, (2,))), [1, [2]], tuples_as_lists=True)
    assert same(encode([1]), (1,), tuples_as_lists=True)


def test_tolerance_is_for_floats_only():
    assert same(encode(1.0000001), 1.0, tolerance=1e-6)
    assert same(encode([1e9 + 1.0]), [1e9], tolerance=1e-6)
    assert not same(encode(1.1), 1.0, tolerance=1e-6)
    assert not same(encode(10**7 + 1), 10**7, tolerance=1e-3)
    assert not same(encode(float("inf")), 1.0, tolerance=1e-6)
    assert not same(encode(10**400), 1.0, tolerance=1e-6)


def test_an_expected_value_must_be_plain():
    with pytest.raises(TypeError, match="deque is not plain data"):
        same(encode([1]), deque([1]))
    with pytest.raises(TypeError, match="deque"):
        same(encode([1]), [deque([1])])


class Level(IntEnum):
    HIGH = 3


class Rigged(str):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __str__(self):
        return "expected"


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Level.HIGH, 3),
        (Rigged("x"), "x"),
        (namedtuple("P", "x y")(1, 2), (1, 2)),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (type("F", (float,), {})(1.5), 1.5),
        (type("B", (bytes,), {})(b"x"), b"x"),
        (type("C", (complex,), {})(1, 2), 1 + 2j),
        (type("S", (set,), {})({1}), {1}),
        (type("Z", (frozenset,), {})({1}), frozenset({1})),
        (type("A", (bytearray,), {})(b"x"), bytearray(b"x")),
        (type("L", (list,), {"__iter__": lambda self: iter([9])})([1]), [1]),
    ],
)
def test_subclasses_become_what_they_hold(value, base):
    assert shape(decode(encode(value))) == shape(base)
    assert shape(flatten(value)) == shape(base)


@pytest.mark.parametrize(
    "value", [np.int64(3), np.float64(1.5), np.bool_(True), np.array([[1, 2], [3, 4]]), np.array(["a", "b"])]
)
def test_arrays_equal_the_lists_they_hold(value):
    node = encode(value)
    assert same(node, value.tolist())
    assert decode(node) == value.tolist()
    assert not same(node, [value.tolist()])
    assert not same(node, None)


@pytest.mark.parametrize(
    "value", [object(), lambda: 1, int, range(3), iter([]), deque(), [object()], {1: print}, np.array([object()])]
)
def test_other_objects_are_refused(value):
    with pytest.raises(UnserialisableError, match="is not plain data"):
        encode(value)


def test_depth_and_size_are_bounded():
    deep = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(CodecError, match="deeper"):
        encode(deep)
    with pytest.raises(CodecError, match="deeper"):
        decode(deep)
    with pytest.raises(CodecError, match="parts"):
        encode([0] * 600_000)
    with pytest.raises(CodecError, match="bytes"):
        pack("a" * (MAX_BYTES + 1))
    with pytest.raises(CodecError, match="bytes"):
        list(unpack(b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 200_000,
        b"9" * 100,
        b"-" + b"9" * 30,
        b"NaN",
        b"-Infinity",
        b"[1,]",
        b"x" * (MAX_BYTES + 1),
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(CodecError):
        loads(data)


FORGED = [
    {},
    {"T": 1},
    {"T": [1], "S": [1]},
    {"Q": 1},
    {"D": [[1]]},
    {"D": [1]},
    {"D": [[[1], 2]]},
    {"S": [[1]]},
    {"I": "xyz"},
    {"I": 3},
    {"I": "f" * 2_000_000},
    {"F": "1.0"},
    {"F": [1]},
    {"B": "zz"},
    {"B": 1},
    {"C": [1]},
    {"C": ["a", 1]},
    {"N": 1},
    {"H": 0},
    {"V": ["range", [1, 2]]},
    {"F": "nan" * 1000},
]


@pytest.mark.parametrize("node", FORGED, ids=[json.dumps(node)[:30] for node in FORGED])
@pytest.mark.parametrize("want", [1, 1.0, "a", [1], (1,), {1}, frozenset({1}), {1: 2}, b"a", 1j, None, True], ids=repr)
def test_forged_nodes_equal_nothing(node, want):
    assert not same(node, want)
    assert not same([node], [want])


@pytest.mark.parametrize("node", FORGED, ids=[json.dumps(node)[:30] for node in FORGED])
def test_forged_nodes_are_refused(node):
    with pytest.raises(CodecError):
        decode(node)


@pytest.mark.parametrize("tag", ["S", "Z", "D"])
def test_a_flood_of_equal_hashes_is_refused_at_once(tag):
    modulus = (1 << 61) - 1
    keys = [encode(at * modulus) for at in range(100_000)]
    node = {tag: [[key, 1] for key in keys] if tag == "D" else keys}
    started = time.perf_counter()
    with pytest.raises(CodecError, match="share one hash"):
        decode(node)
    wants = {"S": {1, 2}, "Z": frozenset({1}), "D": {1: 1}}
    assert not same(node, wants[tag])
    assert time.perf_counter() - started < 20


def test_a_cut_frame_ends_the_reading():
    whole = pack([1]) + pack("b")
    assert list(unpack(whole)) == [[1], "b"]
    assert list(unpack(whole[:-1])) == [[1]]
    assert list(unpack(struct.pack("<I", 5)[:3])) == []
