from __future__ import annotations

import pytest

from roll_core.sandbox.codec import CodecError, UnserialisableError
from roll_core.sandbox.sandbox import Sandbox
from roll_core.sandbox.sessions import Call, Returned, run_calls
from roll_core.sandbox.types import Ending, Limits

LIMITS = Limits(cpu_s=2.0)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


def answers(sandbox, source, *calls, limits=LIMITS):
    return run_calls(sandbox, source, calls, limits=limits)[0]


def test_values_come_back(sandbox):
    source = "def f(x, *, k=0): return {x: [x, (x + k,)], 'k': {k}}\nn = []\ndef count(): n.append(1); return len(n)"
    first, second, third, fourth = answers(
        sandbox, source, Call("f", (1,)), Call("f", (1,), {"k": 2}), Call("count"), Call("count")
    )
    assert first.equals({1: [1, (1,)], "k": {0}})
    assert second.value() == {1: [1, (3,)], "k": {2}}
    assert (third.value(), fourth.value()) == (1, 2)


def test_a_method_of_a_class_gets_an_instance_each_time(sandbox):
    source = (
        "class Solution:\n  n = 0\n  def f(self, x): self.n += x; return self.n\n  @staticmethod\n  def g(): return 5"
    )
    assert [
        answer.value() for answer in answers(sandbox, source, *[Call("Solution.f", (2,))] * 2, Call("Solution.g"))
    ] == [2, 2, 5]


def test_an_error_has_a_name_and_a_message_and_others_go_on(sandbox):
    source = "def f(x):\n  if x == 3: raise SystemExit(4)\n  return 6 // x"
    zero, exits, good, missing, wrong = answers(
        sandbox, source, Call("f", (0,)), Call("f", (3,)), Call("f", (2,)), Call("g"), Call("f.x.y")
    )
    assert (zero.error, zero.message) == ("ZeroDivisionError", "integer division or modulo by zero")
    assert (exits.error, exits.message) == ("SystemExit", "4")
    assert good == Returned(3)
    assert (missing.error, missing.message) == ("NameError", "name 'g' is not defined")
    assert wrong.error == "AttributeError"
    assert not zero.equals(None)
    with pytest.raises(CodecError, match="the call raised ZeroDivisionError"):
        zero.value()


def test_other_values_cannot_come_back(sandbox):
    source = "def f(): return object()\ndef g(): return [f]"
    assert [answer.error for answer in answers(sandbox, source, Call("f"), Call("g"))] == ["UnserialisableError"] * 2


@pytest.mark.parametrize("source", ["def f(", "1 / 0", "import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_a_candidate_that_does_not_load_answers_nothing(sandbox, source):
    found, run = run_calls(sandbox, source, [Call("f"), Call("f")], limits=LIMITS)
    assert found == [None, None]
    assert run.ending is Ending.EXITED


def test_what_came_before_the_end_counts(sandbox):
    source = "import os\ndef f(x):\n  if x == 2: os._exit(0)\n  return x"
    found = answers(sandbox, source, *[Call("f", (x,)) for x in range(4)])
    assert [answer and answer.value() for answer in found] == [0, 1, None, None]


def test_time_runs_out_for_the_call_that_takes_it(sandbox):
    source = "def f(x):\n  while x == 1: pass\n  return x"
    found, run = run_calls(sandbox, source, [Call("f", (x,)) for x in range(3)], limits=Limits(cpu_s=0.4))
    assert found == [Returned(0), None, None]
    assert run.ending is Ending.CPU


FRAME = (
    "import os, struct, json\ndef put(o):\n  b = json.dumps(o).encode()\n  os.write(3, struct.pack('<I', len(b)) + b)\n"
)


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("put({'i': x, 'ok': 7}); return 8", [7, None, None]),
        ("put({'i': 2, 'ok': 7}); return 8", [None, None, None]),
        ("put({'i': x, 'ok': 7, 'more': 1}); return 8", [None, None, None]),
        ("put({'i': x, 'error': 'text'}); return 8", [None, None, None]),
        ("put([x]); return 8", [None, None, None]),
        ("os.write(3, b'\\xff' * 9); return 8", [None, None, None]),
        ("os.write(3, b'\\0'); return 8", [None, None, None]),
        ("x == 2 and [put({'i': i, 'ok': i}) for i in range(9)]; return 8", [8, 8, None]),
        ("os.ftruncate(3, 0) if x == 1 else None; return 8", None),
        ("os.lseek(3, 0, 0); return x + 8", None),
    ],
)
def test_frames_of_the_candidates_own_gain_nothing(sandbox, body, values):
    found = answers(sandbox, FRAME + f"def f(x):\n  {body}", *[Call("f", (x,)) for x in range(3)])
    assert len(found) == 3
    if values is not None:
        assert [answer and answer.value() for answer in found] == values


def test_an_answer_too_many_does_not_shift_others(sandbox):
    source = FRAME + "def f(x):\n  if x == 2:\n    put({'i': 2, 'ok': 'first'})\n  return 'second'"
    assert [answer.value() for answer in answers(sandbox, source, *[Call("f", (x,)) for x in range(3)])] == [
        "second",
        "second",
        "first",
    ]


def test_arguments_must_be_plain(sandbox):
    with pytest.raises(UnserialisableError):
        run_calls(sandbox, "", [Call("f", (object(),))], limits=LIMITS)


def test_comparison_options(sandbox):
    (answer,) = answers(sandbox, "def f(): return (1, 2.0000001)", Call("f"))
    assert not answer.equals([1, 2.0])
    assert answer.equals([1, 2.0], tolerance=1e-6, tuples_as_lists=True)
    assert not answer.equals([1, 2.0], tuples_as_lists=True)
