from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.errors import ConfigError
from roll_core.types import Status, Verdict
from roll_verifier_code import Outcome, normalise, outcome_of
from roll_verifier_code.compare import comparison
from roll_verifier_code.completion import complete
from roll_verifier_code.errors import TaskError
from roll_verifier_code.limits import read_limits
from roll_verifier_code.outcome import CaseOutcome, to_verdict
from roll_verifier_code.tasks import read_tests
from roll_verifier_code.verifier import CodeVerifier


@pytest.mark.parametrize(
    ("policy", "got", "want", "equal"),
    [
        ("tokens", b" 1\n 2", "1 2\n", True),
        ("tokens", b"1.0", "1", False),
        ("tokens", b"yes", "YES", False),
        ("tokens", b"\x001", "1", False),
        ("tokens", b"\xff", "\ufffd", True),
        ("lines", b"\n1 \n 2\n\n", "1\n2", True),
        ("lines", b"1 2", "1\n2", False),
        ("exact", b"1\n", "1\n", True),
        ("exact", b"1", "1\n", False),
        ("exact", b"\xff", "\ufffd", False),
        ("float:1e-6", b"0.3334", "0.333333", False),
        ("float:1e-6", b"1234567890.1", "1234567890.12", True),
        ("float:1e-6", b"1e3", "1000", True),
        ("float:1e-6", b"1 2", "1", False),
        ("float:1e-6", b"nan", "nan", True),
        ("float:1e-6", b"nan", "1", False),
        ("float:1e-6", b"inf", "1e400", False),
        ("float:1e-6", b"Infinity", "inf", False),
        ("float:1e-6", "\uff11".encode(), "1", False),
        ("float:1", b"x", "1", False),
        ("decimals:1e-6", b"1234568", "1234567", False),
        ("decimals:1e-6", b"3.00", "3", True),
        ("decimals:1e-6", b"0.5000001", "0.5", True),
        ("decimals:1e-6", b"9" * 10_000, "9" * 9_999 + "8", False),
    ],
)
def test_comparison(policy, got, want, equal):
    assert comparison(policy)(got, want) is equal


@pytest.mark.parametrize("policy", ["token", "float", "float:", "float:-1", "float:nan", "float:inf", None, 3, "Lines"])
def test_no_such_comparison(policy):
    with pytest.raises(TaskError, match="must be one of"):
        comparison(policy)


def test_limits_override_key_by_key():
    limits = read_limits({"time_s": 2, "mem_mb": 128}, None, {"mem_mb": 64.5, "out_kb": 8192, "procs": 4, "disk_mb": 9})
    assert (limits.cpu_s, limits.memory_mb, limits.output_kb, limits.processes, limits.disk_mb) == (2, 64, 8192, 4, 9)
    default = read_limits()
    assert (default.cpu_s, default.wall, default.memory_mb, default.output_kb) == (5, 20, 512, 4096)


@pytest.mark.parametrize(
    ("limits", "says"),
    [({"time": 1}, "did you mean 'time_s'"), ({"mem": 1}, "mem_mb"), ({"time_s": 0}, "positive"), ([1], "mapping")]
    + [({"time_s": value}, "positive") for value in (-1, True, "5", float("nan"), float("inf"))],
)
def test_wrong_limits_are_named(limits, says):
    with pytest.raises(TaskError, match=says):
        read_limits(limits)
    if isinstance(limits, dict):
        with pytest.raises(ConfigError, match=says):
            CodeVerifier(limits=limits)


STDIO = {"type": "stdio", "cases": [{"stdin": "", "stdout": "1\n"}]}
CHECKER = "def check(stdin, stdout):\n    return True\n"


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        (None, "must be a mapping"),
        ({}, "no known data set"),
        ([], "a list must hold"),
        ("[1]", "a list must hold"),
        ('"text"', "only text"),
        ("x = (", "does not parse"),
        ("x = 1", "no assert"),
        ({"type": "stdoi"}, "did you mean 'stdio'"),
        ({"type": ["stdio"]}, "must be one of"),
        ({**STDIO, "cases": []}, "no case"),
        ({**STDIO, "cases": {}}, "must be a list"),
        ({**STDIO, "compar": "tokens"}, "did you mean 'compare'"),
        ({**STDIO, "cases": [{"stdin": "", "stdot": ""}]}, "did you mean 'stdout'"),
        ({**STDIO, "cases": [{"stdin": "", "stdout": 1}]}, "must be text"),
        ({**STDIO, "cases": [{"stdin": "", "stdout": "\ud800"}]}, "valid Unicode"),
        ({**STDIO, "cases": [{"stdin_python": "'x'", "stdout": ""}]}, "must be expanded"),
        ({**STDIO, "cases": [{"stdin_template": "{canary_port}", "stdout": ""}]}, "must be expanded"),
        ({**STDIO, "limits": {}}, "unknown key 'limits'"),
        ({"type": "asserts", "code": "x = 1"}, "no assert"),
        ({"type": "asserts", "code": "def t():\n    assert f()"}, "ever reached"),
        ({"type": "asserts", "code": "class T:\n    def t(self):\n        assert f()"}, "ever reached"),
        ({"type": "asserts", "code": "if 0:\n    assert f()"}, "ever reached"),
        ({"type": "asserts", "code": "assert f("}, "does not parse"),
        ({"type": "asserts", "code": "assert f()", "reference": "def"}, "reference of the tests does not parse"),
        ({"type": "asserts", "code": "assert f()", "prompt": "def f():"}, "entry_point"),
        ({"type": "asserts", "code": "(" * 5000}, "does not parse"),
        ({"type": "calls", "function": "a b", "cases": []}, "must be a name"),
        ({"type": "calls", "function": "f", "cases": [{"args": [1]}]}, "either 'expected' or 'any_of'"),
        ({"type": "calls", "function": "f", "cases": [{"args": 1, "expected": 1}]}, "must be a list"),
        ({"type": "calls", "function": "f", "cases": [{"expected": 1, "tolerance": "x"}]}, "must be a number"),
        ({"type": "checker", "checker": "def chek(a, b): pass", "cases": [{"stdin": ""}]}, "no function 'check"),
        ({"type": "checker", "checker": "def check(a): pass", "cases": [{"stdin": ""}]}, "must take"),
        ({"type": "checker", "checker": CHECKER, "cases": []}, "no case"),
        ({"prompt": "def g():\n", "test": "assert f()", "entry_point": "f"}, "does not begin"),
        ({"input_output": "{"}, "no JSON"),
        ({"inputs": [1], "outputs": []}, "same length"),
        ({"public_test_cases": "x"}, "neither JSON nor packed"),
        ({"public_test_cases": [{"input": "1", "output": "1", "testtype": "functional"}]}, "func_name"),
        ({"test": "from solution import f\ndef test_a(capsys):\n    assert f()"}, "fixture 'capsys'"),
        ({"test": "from solution import f\ndef test_a():\n    f()"}, "asserts nothing"),
        ({"tests": STDIO, "limit": {}}, "did you mean 'limits'"),
        ({"tests": STDIO, "limits": {"tims": 1}}, "unknown key 'tims'"),
        ({"tests": STDIO, "language": "pyton"}, "did you mean 'python'"),
        ({"tests": {"type": "asserts", "code": "assert f()"}, "language": "cpp"}, "run in Python"),
    ],
)
def test_broken_tasks_have_no_score(tests, says):
    verdict = CodeVerifier().verify("print(1)", tests)
    assert (verdict.status, verdict.score) == (Status.ERROR, None)
    assert says in verdict.reason, verdict.reason
    assert verdict.detail == "error cause=task"
    assert outcome_of(verdict) == Outcome("error", "task")


def test_packed_cases_of_livecodebench_hold_text_and_nothing_else():
    cases = json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}])
    packed = base64.b64encode(zlib.compress(pickle.dumps(cases))).decode()
    assert len(normalise({"private_test_cases": packed, "public_test_cases": cases})["cases"]) == 2
    for value in (len, [cases]):
        harmful = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
        with pytest.raises(TaskError, match=r"refer to builtins\.len|packed list"):
            normalise({"private_test_cases": harmful})


def test_rows_become_tests():
    apps = {"fn_name": "f", "inputs": [[1, {"2": 3}]], "outputs": [[{"4": 5}]]}
    case = normalise({"input_output": json.dumps(apps)})["cases"][0]
    assert case == {"args": [1, {2: 3}], "any_of": [[{"4": 5}], {4: 5}]}
    assert normalise({"inputs": [["1", "2"]], "outputs": ["3"]})["cases"] == [{"stdin": "1\n2", "stdout": "3"}]
    mbpp = {"test_list": ["assert sum(1, 2) == 3"], "test_setup_code": "import math", "code": "def sum(a, b):\r\n  ..."}
    assert normalise(mbpp) == {
        "type": "asserts",
        "code": "import math\nassert sum(1, 2) == 3\n",
        "entry_point": "sum",
    }
    code = normalise("from solution import f as g\nimport solution, math\nassert g(1) == solution.h(2) == math.pi\n")[
        "code"
    ]
    assert code == "g = f\nimport math\nassert g(1) == h(2) == math.pi\n"
    assert normalise(STDIO) == STDIO


def test_pytest_style_gets_a_driver():
    text = """
import pytest, unittest
from solution import f
@pytest.fixture
def three():
    yield 3
@pytest.mark.parametrize(("a", "b"), [(1, 2)])
def test_a(a, b, three):
    assert f(a) == b
class TestB:
    def test_b(self):
        assert f(0) == pytest.approx(1)
if __name__ == "__main__":
    unittest.main()
"""
    code = normalise(text)["code"]
    assert code.endswith("run_tests(globals(), ['test_a'], ['TestB'])\n")
    assert "unittest.main()" not in code
    read_tests(normalise(text))


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("    return x\n", 3),
        ("return x\n", 3),
        ("y = x\nreturn y\n", 3),
        ("y = x\n    return y\n", 3),
        ("if x:\n    return x\nreturn 0", 3),
        ("if x:\n        return x\n    return 0", 3),
        ("for i in range(2):\n    x += 1\n", None),
        ("def f(x):\n    return x\n", 3),
        ("from __future__ import annotations\nimport math\n\ndef f(x: Undefined):\n    return math.floor(x)\n", 3),
        ("f = lambda x: x\n", 3),
    ],
)
def test_an_answer_continues_its_prompt(answer, result):
    names: dict = {}
    exec(complete('import os\n\ndef f(x):\n    """Doc."""\n', "f", answer), names)
    assert names["f"](3) == result


words = st.sampled_from(["pass", "fail", "timeout", "error"])


@given(st.lists(words, min_size=1, max_size=30), st.booleans(), st.floats(0, 100))
def test_a_verdict_tells_its_outcome(cases, partial, cpu_s):
    verdict = to_verdict(
        [CaseOutcome(w, "said (cpu_s=7)", cpu_s=cpu_s, level="ns") for w in cases], "x", partial=partial
    )
    said = outcome_of(verdict)
    assert said.cases == tuple(cases)
    assert said.outcome == (cases[0] if len(set(cases)) == 1 else "fail") == verdict.detail.split()[0]
    assert (said.cause, said.level) == ("candidate", "ns")
    assert said.fraction == pytest.approx(cases.count("pass") / len(cases), abs=1e-8)
    assert said.cpu_s == pytest.approx(cpu_s * len(cases), abs=1e-3)
    all_pass = set(cases) == {"pass"}
    assert (verdict.status is Status.CORRECT) is all_pass
    assert verdict.score == pytest.approx(1.0 if all_pass else said.fraction if partial else 0.0, abs=1e-8)


def test_many_cases_do_not_make_a_long_reason():
    cases = [CaseOutcome("pass" if n % 2 else "fail") for n in range(2000)]
    verdict = to_verdict(cases, "x", partial=False)
    assert (verdict.detail, outcome_of(verdict).cases) == ("fail cause=candidate fraction=0.5", ())
    assert outcome_of(to_verdict(cases[1:2] * 5000, "x", partial=False)).cases == ("pass",) * 5000


@pytest.mark.parametrize("detail", ["", "pass", "raised", "pass cause=nobody", "good cause=candidate"])
def test_other_details_are_refused(detail):
    with pytest.raises(ValueError, match="is no"):
        outcome_of(Verdict.error("", detail=detail))


KEYS = [
    "type",
    "cases",
    "stdin",
    "stdout",
    "code",
    "test",
    "prompt",
    "entry_point",
    "test_list",
    "input_output",
    "inputs",
    "outputs",
    "fn_name",
    "public_test_cases",
    "metadata",
    "function",
    "args",
    "expected",
    "checker",
    "tests",
    "limits",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["stdio", "asserts", "calls"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_no_reference_makes_it_raise(reference):
    assert CodeVerifier().verify("", reference).status in (Status.ERROR, Status.INVALID)
