"""The tests' side against a candidate's side that sends whatever it likes."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.sandbox.inside.link import Link, Unverifiable


class Forger:
    """A channel whose other end answers every request with one reply, sealed with the right number or not."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.sent = []
        self.number = 0

    def send(self, message):
        self.sent.append(message)
        self.number = message.get("id", self.number)

    def receive(self):
        if not self.replies:
            raise EOFError
        reply = self.replies.pop(0)
        return {"id": self.number, **reply} if type(reply) is dict else reply


def ask(reply, operation="call"):
    link = Link(Forger(reply), copy_back=True)
    return link, lambda: link.ask(operation, 0, [1], {})


HANDLE = {"id": 1, "type": "T", "can": ["call", "len", "iter", "item", "enter"]}

FORGED = [
    {},
    {"ok": {"H": 3}},
    {"ok": {"H": {}}},
    {"ok": {"H": {**HANDLE, "id": "1"}}},
    {"ok": {"H": {**HANDLE, "type": None}}},
    {"ok": {"H": {**HANDLE, "can": ["everything"]}}},
    {"ok": {"H": {**HANDLE, "can": [[]]}}},
    {"ok": {"H": {**HANDLE, "can": "call"}}},
    {"ok": {"H": {**HANDLE, "base": "type"}}},
    {"ok": {"H": {**HANDLE, "base": []}}},
    {"ok": {"H": {**HANDLE, "base": "int", "value": "text"}}},
    {"ok": {"H": {**HANDLE, "base": "int", "value": True}}},
    {"ok": {"H": {**HANDLE, "base": "str"}}},
    {"ok": {"K": 0}},
    {"ok": {"K": -1}},
    {"ok": {"K": True}},
    {"ok": {"W": "0"}},
    {"ok": {"M": "os"}},
    {"ok": {"R": {"id": 0, "type": "x"}}},
    {"ok": {"Y": 0}},
    {"ok": {"X": "int"}},
    {"ok": {"X": "NoSuchError"}},
    {"ok": {"X": {"id": 1}}},
    {"ok": {"X": {"id": 1, "name": "A", "bases": [{"id": 2, "name": "B", "bases": ["int"]}]}}},
    {"ok": {"X": {"id": 1, "name": "A\0", "bases": []}}},
    {"ok": {"E": {}}},
    {"ok": {"E": {"class": "ValueError", "args": 3, "text": "", "id": 1}}},
    {"ok": {"E": {"class": "ExceptionGroup", "args": ["", []], "text": "", "id": 1}}},
    {"ok": {"E": {"token": 5}}},
    {"ok": {"V": ["Fraction", [1, 0]]}},
    {"ok": {"V": ["Decimal", "x"]}},
    {"ok": {"V": ["range", [1, "2"]]}},
    {"ok": {"V": ["type", "eval"]}},
    {"ok": {"V": ["type", []]}},
    {"ok": {"V": ["defaultdict", ["eval", {"D": []}]]}},
    {"ok": {"V": ["Counter", 3]}},
    {"ok": {"V": ["deque", [[], -1]]}},
    {"ok": {"V": ["date", "2020"]}},
    {"ok": {"V": [[], 1]}},
    {"ok": {"N": ["O", [1]]}},
    {"ok": {"N": ["<i8", ["a"]]}},
    {"ok": {"N": ["<i99", [1]]}},
    {"ok": {"N": ["<U999999999999", ["a"]]}},
    {"ok": {"T": [{"H": 1}]}},
    {"err": 3},
    {"err": {"X": "ValueError"}},
    {"err": {"E": {"class": "StopIteration", "args": [], "text": "", "id": 1}}},
    {"err": {"E": {"class": "GeneratorExit", "args": [], "text": "", "id": 1}}},
    {"err": {"E": {"class": "KeyboardInterrupt", "args": [], "text": "", "id": 1}}},
    {"ok": 1, "args": 3},
    {"ok": 1, "args": {"x": [2]}},
    {"ok": 1, "args": {"7": [2]}},
    {"ok": 1, "args": {"0": {"H": 1}}},
    {"ok": 1, "id": 99},
    {"ok": 1, "id": None},
    {"fault": "too large"},
    {"back": 0, "op": "call", "args": [], "kwargs": {}},
    {"back": "0", "op": "call", "args": [], "kwargs": {}},
    {"back": 0, "op": "attr", "args": ["__globals__"], "kwargs": {}},
]


@pytest.mark.parametrize("reply", FORGED, ids=repr)
def test_a_forged_reply_is_a_fault_for_good(reply):
    link, call = ask(reply)
    with pytest.raises(Unverifiable):
        call()
    assert link.fault is not None
    with pytest.raises(Unverifiable):
        link.name("f")


nodes = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["ValueError", "int", "call"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["H", "X", "E", "K", "M", "R", "Y", "V", "N", "T", "S", "Z", "D", "I", "F", "B", "A", "C"]),
            inner,
            min_size=1,
            max_size=1,
        )
        | st.dictionaries(
            st.sampled_from(["id", "type", "can", "base", "value", "name", "bases", "class", "args", "text", "token"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["ok", "err"]), nodes)
def test_any_reply_is_a_value_a_candidates_exception_or_a_fault(key, node):
    link, call = ask({key: node})
    try:
        call()
    except Unverifiable:
        assert link.fault is not None
    except BaseException:
        assert key == "err"
    else:
        assert key == "ok"


def handle(**details):
    link = Link(Forger({"ok": {"H": {**HANDLE, **details}}}), copy_back=False)
    return link, link.ask("call", 0)


REFUSED = {
    "equal": lambda h: h == 3,
    "equal, reversed": lambda h: h == 3,
    "not equal": lambda h: h != 3,
    "in a list": lambda h: h in [3],
    "list": lambda h: [h] == [3],
    "order": lambda h: h < 3,
    "order, reversed": lambda h: h >= 3,
    "membership": lambda h: 3 in h,
    "hash": hash,
    "in a set": lambda h: {h},
    "difference": lambda h: h - 3,
    "difference, reversed": lambda h: 3 - h,
    "sum": lambda h: sum([h]),
    "or": lambda h: h | {3},
    "in place": lambda h: operator.iadd(h, 3),
    "prefix": lambda h: h.startswith("a"),
    "subset": lambda h: h.issubset({3}),
    "pickle": lambda h: __import__("pickle").dumps(h),
    "subclass": lambda h: type("S", (), {}) and __import__("types").new_class("S", (h,)),
    "explicit comparison": lambda h: h.__eq__(3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rigged_object_could_use_is_a_fault(name):
    link, value = handle()
    with pytest.raises(Unverifiable):
        REFUSED[name](value)
    assert link.fault is not None


def test_the_truth_of_an_object_is_its_own_only_where_python_says_so():
    assert bool(handle(can=[])[1]) is True
    link, value = handle(can=["bool"])
    with pytest.raises(Unverifiable):
        bool(value)
    assert link.fault is not None


def test_an_object_is_identical_to_itself_only():
    link = Link(Forger(*[{"ok": {"H": HANDLE}}] * 2, {"ok": {"H": {**HANDLE, "id": 2}}}), copy_back=False)
    first, again, other = (link.ask("call", 0) for _ in range(3))
    assert first is again
    assert first == again
    assert first is not other
    with pytest.raises(Unverifiable):
        assert first == other


@pytest.mark.parametrize(
    ("operation", "reply"),
    [(str, 3), (repr, None), (len, -1), (len, "3"), (len, True), (int, 1.5), (float, 1), (iter, [1]), (iter, 3)],
    ids=repr,
)
def test_answers_of_special_methods_must_be_plain(operation, reply):
    link = Link(
        Forger({"ok": {"H": {**HANDLE, "can": ["len", "iter", "int", "float"]}}}, {"ok": reply}), copy_back=False
    )
    value = link.ask("call", 0)
    with pytest.raises(Unverifiable):
        operation(value)


def test_values_cross_in_both_directions_by_table_only():
    forger = Forger({"ok": 1})
    link = Link(forger, copy_back=False)

    def function(x):
        """Doc."""

    link.ask("call", 0, function, ValueError, iter([1]), int, key=ValueError("v"))
    function_node, class_node, iterator_node, int_node = forger.sent[0]["args"]
    assert function_node == {"K": {"id": 0, "name": "function", "doc": "Doc."}}
    assert class_node == {"X": "ValueError"}
    assert iterator_node == {"Y": 1}
    assert int_node == {"V": ["type", "int"]}
    assert forger.sent[0]["kwargs"]["key"] == {"E": {"name": "ValueError", "args": ["v"], "token": 2}}


def test_what_cannot_cross_is_the_tests_fault_not_the_candidates():
    link = Link(Forger({"ok": 1}), copy_back=False)
    with pytest.raises(Unverifiable):
        link.ask("call", 0, memoryview(b"x"))
    assert link.fault is None
    assert "memoryview" in link.unsupported
