from __future__ import annotations

import contextlib
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roll_core.types import Status
from roll_verifier_code import NoProgramError, extract_code, outcome_of
from roll_verifier_code.budget import Budget
from roll_verifier_code.compare import comparison
from roll_verifier_code.errors import shown
from roll_verifier_code.limits import read_limits
from roll_verifier_code.outcome import CaseOutcome, to_verdict
from roll_verifier_code.strings import after_strings
from roll_verifier_code.verifier import CodeVerifier

SIZE = 399_000
BOUND_S = 10.0
"""Seconds of processor time; reading in linear time takes well below one, in quadratic time minutes."""
FENCES = [(length, depth) for length in range(45, 3, -1) for depth in range(45)]
SHAPES = {
    "blanks behind an inline fence": "x ```" + " " * SIZE + "x y",
    "inline pairs": "a ``` b ```\n" * (SIZE // 12),
    "blanks before no assignment": "a" + " " * (SIZE - 20) + "!\n```x```",
    "escaped quotes": ('"' + '\\"' * 9990 + "\n") * 19,
    "escaped quotes in a block": "```python\n" + ('"' + '\\"' * 9990 + "\n") * 19,
    "escaped quotes in one line": "```python\n" + '"' + '\\"' * (SIZE // 2),
    "blanks behind a tag": "x ```a" + " " * SIZE + "y",
    "backticks": "`" * SIZE + "a b",
    "backticks within a line": "x" + "`" * SIZE + " a b",
    "blank lines": "\n" * (SIZE - 20) + "```x = 1```",
    "blank lines of a block": "    ```\n" + "\n" * SIZE,
    "openers": "```python\n" * (SIZE // 10),
    "quotes before fences": "x '''\n" + "y ```\n" * (SIZE // 6),
    "closed and open strings": "'''\n" + "```\n" * (SIZE // 4) + '"""',
    "triple quotes": "```python\n" + "'''\n" * (SIZE // 4),
    "fences that shrink": "".join("`" * k + "\nx\n</think>\n" for k in range(850, 3, -1))[:SIZE],
    "fences that shrink around quotes": "".join("`" * k + "\n'''\n</think>\n" for k in range(840, 3, -1))[:SIZE],
    "fences that shrink and move": "".join(" " * 4 * d + "`" * k + "\n</think>\n" for k, d in FENCES)[:SIZE],
    "thinking in quotes": '"<think>"' * (SIZE // 9),
    "ends of thinking": '```\n"""\n</think>\n' * (SIZE // 17),
    "spans": "```a```" * (SIZE // 7),
    "a reply in a block": "````markdown\n" + "```\n" * (SIZE // 4),
    "an endless tag": "```" + "{" * SIZE,
    "from": "from " + " " * SIZE,
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_no_reply_takes_long_to_read(text):
    started = time.process_time()  # other work on the machine must not count
    with contextlib.suppress(NoProgramError):
        extract_code(text[:400_000])
    assert time.process_time() - started < BOUND_S


@pytest.mark.parametrize(
    ("line", "before", "behind"),
    [
        ("x = '''a", "", "'''"),
        ('it\'s """', "", '"""'),
        ("'a' '''", "", "'''"),
        (r'"\"" """', "", '"""'),
        (r'"\\" """', "", '"""'),
        ("x = 1 # '''", "", ""),
        ("a''' + \"'''\"", "'''", ""),
        ('a""" # """', '"""', ""),
        ("text", "'''", "'''"),
    ],
)
def test_strings_that_stay_open(line, before, behind):
    assert after_strings(line, before) == behind


@pytest.mark.parametrize(
    ("policy", "got", "want"),
    [
        ("decimals:1e-6", b"1e9999999999999999999", "5"),
        ("decimals:1e-6", b"1e9999", "5"),
        ("float:1e-6", b"-1e99999999999999999999", "5"),
        ("decimals:1e-6", b"1e-9999999999999999999", "0"),
    ],
)
def test_absurd_exponents_are_wrong(policy, got, want):
    assert comparison(policy)(got, want) is False


@given(st.text(" a\n\t\x1c\x85\u00a0\u3000é", max_size=40), st.text(" a\n\u00a0é", max_size=40), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_compare_as_the_whole(monkeypatch, got, want, size):
    monkeypatch.setattr("roll_verifier_code.compare._PIECE", size)
    assert comparison("tokens")(got.encode(), want) is (got.split() == want.split())
    lines = [[line.strip() for line in text.strip().split("\n")] for text in (got, want)]
    assert comparison("lines")(got.encode(), want) is (lines[0] == lines[1])
    assert comparison("tokens")(got.encode(), f"\n{got} ")
    assert comparison("lines")(got.encode(), f"\n{got} \n")


@pytest.mark.parametrize("policy", ["tokens", "lines", "float:0", "decimals:0"])
@pytest.mark.parametrize("output", [b"\xff " * 2_000_000, b"ab\n" * 1_300_000, b"\n" * 4_000_000, b"x" * 4_000_000])
def test_a_large_output_takes_little_memory(policy, output):
    tracemalloc.start()
    equal = comparison(policy)(output, "1 2")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not equal
    assert most < 32_000_000


def test_a_budget_that_is_all_but_spent():
    budget = Budget(read_limits(), total_s=1.0, started=time.monotonic() - 0.9995)
    assert budget.next_run() is None


def test_values_in_messages_are_short():
    assert shown(10**5000).startswith("an integer of 16610 bits")
    assert shown([10**5000]) == "a value of type list"
    assert len(shown("x" * 1000)) == 60


def test_what_a_checker_computes_cannot_break_its_message():
    checker = "def check(i, o, e):\n    return 1 - abs(int(o[:4000]) * 10**3000 - int(e))\n"
    tests = {"type": "checker", "checker": checker, "cases": [{"stdin": "", "stdout": "0"}]}
    verdict = CodeVerifier().verify("print('1' + '0' * 3000)", tests)
    assert (verdict.status, verdict.score) == (Status.INCORRECT, 0.0), verdict.reason
    assert "bits" in verdict.reason


def test_verdicts_hold_nothing_that_harms_a_terminal():
    case = CaseOutcome("error", "E: \x1b[31m\ud800\u202e\nx\x00")
    verdict = to_verdict([case], "print('\x1b\u202e')\n\tx\r\n", partial=False)
    assert r"E: \x1b[31m\ud800\u202e\nx\x00 (cases" in verdict.reason
    assert verdict.answer == "print('\\x1b\\u202e')\n\tx\r\n"
    calls = {"type": "calls", "function": "f", "cases": [{"args": [], "expected": 1}]}
    verdict = CodeVerifier().verify("def f(): raise ValueError('\\ud800\\x1b[31m')", calls)
    assert verdict.score == 0.0
    assert verdict.reason.encode("utf-8").isascii()
    assert "\x1b" not in verdict.reason


STDIO = {"type": "stdio", "compare": "decimals:1e-6", "cases": [{"stdin": "1", "stdout": "5"}]}
CALLS = {"type": "calls", "function": "f", "cases": [{"args": [1], "expected": 5}]}
ASSERTS = {"type": "asserts", "code": "assert f(1) == 5\n", "prompt": "def f(x):\n", "entry_point": "f"}
CHECKER = {
    "type": "checker",
    "checker": "def check(i, o):\n    return len(o) * 1e300 * 1e300\n",
    "cases": [{"stdin": ""}],
}
ODD = st.text("`~'\"\\<>/think#= \n\t\x00\x1b\ud800\ufeff:{}abc", max_size=60)
PRINTED = st.sampled_from(
    ["1e999999999", "-inf", "nan", "0" * 5000, "9" * 5000, "1e-99999999", "\\x00", "\\ud800", "1_0", "--1", "+.e1", "١"]
)
RETURNED = st.sampled_from(
    [
        "10**9999",
        "float('nan')",
        "'\\ud800'",
        "b'\\xff'",
        "[[[]]] * 9",
        "object()",
        "type",
        "1j",
        "{1: {2}}",
        "f",
        "...",
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.one_of(ODD, PRINTED.map(lambda text: f"print('{text}')"), RETURNED.map(lambda e: f"def f(x): return {e}")))
def test_nothing_that_a_response_holds_reaches_the_boundary(response):
    verifier = CodeVerifier(limits={"time_s": 1})
    for tests in (STDIO, CALLS, ASSERTS, CHECKER):
        verdict = verifier.verify(response, tests)
        assert verdict.status in (Status.INCORRECT, Status.INVALID), verdict
        assert verdict.score == 0.0


def test_a_fault_of_the_package_is_an_error_without_score(monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("\x1b")

    monkeypatch.setattr("roll_verifier_code.verifier.extract_code", broken)
    verdict = CodeVerifier().verify("print(1)", STDIO)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.ERROR, None, "error cause=verifier")
    assert verdict.reason == r"the verifier failed: ZeroDivisionError: \x1b"
    assert outcome_of(verdict).cause == "verifier"
    assert "failed on a response of 8 characters" in caplog.text


@pytest.mark.parametrize(
    "tests",
    [
        {"tests": STDIO, "limits": {"time_s": 10**400}},
        {"type": 10**5000},
        {**CALLS, "tolerance": 10**400},
        {**STDIO, "compare": [10**5000]},
        {10**5000: 1, **STDIO},
    ],
)
def test_huge_numbers_in_tests_are_the_tasks_fault(tests):
    assert CodeVerifier().verify("print(1)", tests).detail == "error cause=task"
