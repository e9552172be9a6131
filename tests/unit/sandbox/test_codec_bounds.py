"""Tolerance never swallows infinity, and an answer's parts are counted before they are built."""

from __future__ import annotations

import tracemalloc

import pytest

from roll_core.sandbox.codec import MAX_BYTES, CodecError, encode, loads, pack, unpack
from roll_core.sandbox.same import same
from roll_core.sandbox.sessions import Returned, _read_answers, printable

INF = float("inf")


@pytest.mark.parametrize(
    ("got", "want"), [(0.0, INF), (0, INF), (-INF, INF), (1e308, -INF), (INF, 1.0), (0.0, float("nan"))]
)
def test_no_tolerance_reaches_infinity(got, want):
    assert not same(encode(got), want, tolerance=1e-6)
    assert not same(encode([got]), [want], tolerance=0.5)


def test_infinity_equals_itself():
    assert same(encode(INF), INF, tolerance=1e-6)


@pytest.mark.parametrize("part", [b"[]", b"{}", b"1", b'""'])
def test_too_many_parts_are_refused_before_they_are_built(part):
    data = b"[" + b",".join([part] * (MAX_BYTES // (len(part) + 1) - 1)) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="parts"):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    finally:
        tracemalloc.stop()


def test_commas_in_texts_are_no_parts():
    text = '[,{\\"' * 500_000
    assert loads(pack(text)[4:]) == text
    table = {at: str(at) for at in range(200_000)}
    assert same(loads(pack(encode(table))[4:]), table)


def test_answers_are_kept_as_text():
    frame = pack({"i": 0, "ok": [[]] * 300_000})
    tracemalloc.start()
    try:
        (answer,) = _read_answers(frame, 1)
        assert answer is not None
        assert tracemalloc.get_traced_memory()[0] < 2 * len(frame)
    finally:
        tracemalloc.stop()
    assert answer.equals([[]] * 300_000)


def test_equal_answers():
    assert Returned([1, "a"]) == Returned([1, "a"])
    assert Returned(1) != Returned(2)
    assert Returned(1) != 1
    assert len({Returned(1), Returned(1)}) == 1
    assert repr(Returned([1])) == "Returned([1], None, '')"


def test_a_bare_infinity_is_no_answer():
    assert list(unpack(pack({"i": 0, "ok": 1.5}))) == [{"i": 0, "ok": 1.5}]
    with pytest.raises(CodecError, match="no node"):
        pack(INF)
    data = b'{"i":0,"ok":1e999}'
    assert _read_answers(len(data).to_bytes(4, "little") + data, 1) == [None]


def test_messages_are_printable():
    assert printable("a b\x1b[31m\ud800é\n") == "a b\\x1b[31m\\ud800é\\n"
