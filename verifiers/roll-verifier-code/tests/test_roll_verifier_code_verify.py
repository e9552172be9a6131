from __future__ import annotations

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from roll_core import load_verifier
from roll_core.errors import ConfigError
from roll_core.sandbox import LEVELS, SandboxError, SandboxUnavailableError
from roll_core.sandbox.external import ExternalSandbox
from roll_core.testing.golden import read_golden
from roll_core.types import Status
from roll_verifier_code import outcome_of
from roll_verifier_code.conformance import CONFORMANCE
from roll_verifier_code.machines import Machine
from roll_verifier_code.plugin import roll_register_verifiers
from roll_verifier_code.verifier import CodeVerifier

ADD = {"type": "stdio", "cases": [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "-5 5\n", "stdout": "0\n"}]}
SUM = "a, b = map(int, input().split())\nprint(a + b)\n"
SQUARE = {"type": "asserts", "code": "assert square(3) == 9\nassert square(-2) == 4\n"}
CALLS = {"type": "calls", "function": "f", "cases": [{"args": [n], "expected": n * n} for n in range(4)]}
GOLDEN = read_golden(roll_register_verifiers()[0], CONFORMANCE["verifiers/code"])
BROKEN = "vacuous_tests"


@pytest.fixture(params=LEVELS)
def level(request):
    try:
        Machine(request.param).sandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    return request.param


def test_golden_rows(level):
    """Every row at one of the levels, every attack at all of them in the course of the three."""
    verifier = CodeVerifier(level=level)
    for row in GOLDEN[LEVELS.index(level) :: len(LEVELS)]:
        verdict = verifier.verify(row.response, row.reference, **row.options)
        assert (verdict.score == 1.0) is row.expected, (row.id, row.note, verdict)
        assert (verdict.score is None) is (row.kind == BROKEN), (row.id, row.note, verdict)


@pytest.mark.parametrize(
    ("code", "tests", "limits", "detail"),
    [
        (SUM, ADD, {}, "pass cause=candidate fraction=1 level=LEVEL | pass*2"),
        ("print(3)", ADD, {}, "fail cause=candidate fraction=0.5 level=LEVEL | pass,fail"),
        (f"{SUM}print(1 // b)", ADD, {}, "fail cause=candidate fraction=0 level=LEVEL | fail*2"),
        (f"{SUM}1 // (a - 1)", ADD, {}, "fail cause=candidate fraction=0.5 level=LEVEL | error,pass"),
        ("while True: pass", ADD, {"time_s": 0.3}, "timeout cause=candidate fraction=0 level=LEVEL | timeout*2"),
        (
            "import time\ntime.sleep(9)",
            ADD,
            {"wall_s": 0.3},
            "timeout cause=candidate fraction=0 level=LEVEL | timeout*2",
        ),
        (
            "x = bytearray(1 << 30)",
            ADD,
            {"mem_mb": 256},
            "error cause=candidate fraction=0 level=LEVEL | error*2",
        ),
        ("def square(x): return x * x", SQUARE, {}, "pass cause=candidate fraction=1 level=LEVEL | pass"),
        ("def square(x): return 9", SQUARE, {}, "fail cause=candidate fraction=0 level=LEVEL | fail"),
        ("def square(x): return 1 // 0", SQUARE, {}, "error cause=candidate fraction=0 level=LEVEL | error"),
        (
            "def square(x):\n    while True: pass",
            SQUARE,
            {"time_s": 0.5},
            "timeout cause=candidate fraction=0 level=LEVEL | timeout",
        ),
        ("def f(x): return x * x", CALLS, {}, "pass cause=candidate fraction=1 level=LEVEL | pass*4"),
        (
            "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x * x",
            CALLS,
            {},
            "fail cause=candidate fraction=0.75 level=LEVEL | pass*2,error,pass",
        ),
        (
            "def f(x):\n    while x == 1: pass\n    return x * x",
            CALLS,
            {"time_s": 0.3},
            "fail cause=candidate fraction=0.75 level=LEVEL | pass,timeout,pass*2",
        ),
        ("I do not know.", ADD, {}, "error cause=candidate fraction=0 level=LEVEL | error*2"),
        ("", ADD, {}, "error cause=candidate fraction=0"),
    ],
)
def test_the_detail_says_what_happened(level, code, tests, limits, detail):
    verdict = CodeVerifier(level=level).verify(code, tests, limits=limits)
    detail, _, cases = detail.partition(" | ")
    assert verdict.detail == detail.replace("LEVEL", level), verdict.reason
    assert f"(cases={cases} cpu_s=" in verdict.reason or not cases
    assert verdict.score == (1.0 if detail.startswith("pass") else 0.0)
    assert outcome_of(verdict).level == (level if "LEVEL" in detail else "")


def test_use_in_two_lines():
    verdict = load_verifier("code")(SUM, ADD, limits={"time_s": 2})
    assert verdict.status is Status.CORRECT
    assert outcome_of(verdict).cpu_s > 0


def test_partial_credit():
    verify = CodeVerifier(partial=True).verify
    assert verify("print(3)", ADD).score == 0.5
    assert verify(SUM, ADD).score == 1.0
    assert verify("print(4)", ADD).score == 0.0
    checker = {"type": "checker", "checker": "def check(i, o):\n    return int(o) / 4\n", "cases": [{"stdin": ""}] * 2}
    verdict = verify("print(3)", checker)
    assert (verdict.score, outcome_of(verdict).fraction, outcome_of(verdict).outcome) == (0.75, 0.75, "fail")
    assert verify("print(4)", checker).status is Status.CORRECT
    for output in ("5", "-1", "x", "nan"):
        assert verify(f"print({output!r})", checker).score == 0.0


def test_a_broken_checker_is_the_tasks_fault():
    checker = {"type": "checker", "checker": "def check(i, o, e):\n    return compare(o, e)\n"}
    case = {"stdin": "", "stdout": "1"}
    assert CodeVerifier().verify("print(1)", {**checker, "cases": [case]}).status is Status.ERROR
    sloppy = {"type": "checker", "checker": "def check(i, o, e):\n    return int(o) == int(e)\n", "cases": [case]}
    assert CodeVerifier().verify("print('x')", sloppy).status is Status.INCORRECT


@pytest.mark.parametrize(
    ("checker", "case", "status"),
    [
        ("def check(i, o, e):\n    return int(o) > 5\n", {"stdout": "any number"}, Status.INCORRECT),
        ("import os\ndef check(i, o):\n    int(o) if o == '1' else os._exit(1)\n    return 1\n", {}, Status.INCORRECT),
        ("def check(i, o):\n    return int('9' * len(o))\n", {}, Status.INCORRECT),
        ("def check(i, o, e):\n    if o == e: return True\n", {"stdout": "1"}, Status.INCORRECT),
        ("def check(i, o, e):\n    return o == e, 'why'\n", {"stdout": "1"}, Status.ERROR),
        ("import no_such\ndef check(i, o):\n    return True\n", {}, Status.ERROR),
        ("import os\nos._exit(0)\ndef check(i, o):\n    return True\n", {}, Status.ERROR),
        ("def check(i, o):\n    import no_such\n    return True\n", {}, Status.ERROR),
        ("def check(i, o):\n    True\n", {}, Status.ERROR),
    ],
)
def test_what_a_program_prints_decides_not_whether_it_is_scored(checker, case, status):
    tests = {"type": "checker", "checker": checker, "cases": [{"stdin": "", **case}]}
    assert CodeVerifier().verify("print('rubbish')", tests).status is status


def test_stop_early_leaves_the_rest_out():
    slow = "import sys\nn = int(input())\nprint(n if n else 1)"
    tests = {"type": "stdio", "cases": [{"stdin": f"{n}\n", "stdout": f"{n}\n"} for n in (1, 0, 2)]}
    assert outcome_of(CodeVerifier(stop_early=True).verify(slow, tests)).cases == ("pass", "fail")
    assert outcome_of(CodeVerifier(stop_early=True).verify("def f(x): return x", CALLS)).cases == ("pass",) * 2 + (
        "fail",
    )
    with pytest.raises(ConfigError, match="choose one"):
        CodeVerifier(stop_early=True, partial=True)


def test_the_budget_bounds_all_cases_together():
    tests = {"type": "stdio", "cases": [{"stdin": "", "stdout": ""}] * 50}
    verdict = CodeVerifier(budget_s=1.0).verify("import time\ntime.sleep(0.4)", tests)
    assert outcome_of(verdict).cases[-1] == "timeout"
    assert verdict.score == 0.0
    assert CodeVerifier(budget_s=0.5).verify("def f(x):\n    while 1: pass", CALLS).detail.startswith("timeout")
    with pytest.raises(ConfigError, match="budget_s"):
        CodeVerifier(budget_s=0)


def test_limits_and_language_may_come_with_the_tests():
    loop = {"tests": ADD, "limits": {"time_s": 0.2}, "language": "python"}
    assert outcome_of(CodeVerifier(limits={"time_s": 60}).verify("while 1: pass", loop)).outcome == "timeout"


def test_more_modules_can_be_allowed(level):
    tests = {"type": "asserts", "code": "import numpy as np\nassert (total(np.arange(4)) == 6).all()\n"}
    code = "import numpy as np\ndef total(x): return np.sum(x)\n"
    assert CodeVerifier(level=level, packages=("numpy",)).verify(code, tests).score == 1.0
    assert CodeVerifier(level=level).verify("import numpy", ADD).score == 0.0
    with pytest.raises(ConfigError, match="not installed"):
        CodeVerifier(packages=("no_such_module",))


def test_a_broken_sandbox_has_no_score(monkeypatch):
    def fail(self):
        raise SandboxError("no zygote")

    monkeypatch.setattr(Machine, "sandbox", fail)
    verdict = CodeVerifier().verify(SUM, ADD)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.ERROR, None, "error cause=sandbox")


def test_many_threads_share_a_sandbox():
    verifier = CodeVerifier(zygotes=2)
    with ThreadPoolExecutor(8) as pool:
        codes = [SUM if n % 2 else "print(3)" for n in range(40)]
        scores = list(pool.map(lambda code: verifier.verify(code, ADD).score, codes))
    assert scores == [0.0, 1.0] * 20


def test_it_survives_pickling_and_forks():
    verifier = pickle.loads(pickle.dumps(CodeVerifier(limits={"time_s": 2})))
    assert verifier.verify(SUM, ADD).score == 1.0
    child = os.fork()
    if not child:
        os._exit(0 if verifier.verify(SUM, ADD).score == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verifier.verify(SUM, ADD).score == 1.0


FOREIGN = [
    ("cpp", "g++", "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a OP b; }\n"),
    (
        "javascript",
        "node",
        "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number)\nconsole.log(a OP b)",
    ),
    ("bash", "bash", "read a b\necho $((a OP b))\n"),
]


@pytest.mark.parametrize(("language", "tool", "code"), FOREIGN)
def test_other_languages(language, tool, code):
    try:
        ExternalSandbox()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    verify = CodeVerifier(language=language).verify
    assert verify(f"```{language}\n{code.replace('OP', '+')}```\n\n```text\n3\n```", ADD).score == 1.0
    assert verify(code.replace("OP", "-"), ADD).detail.startswith("fail")
    assert verify("(", ADD).detail.startswith("error")
