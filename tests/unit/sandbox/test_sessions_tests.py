from __future__ import annotations

import pytest

from roll_core.sandbox.sandbox import Sandbox
from roll_core.sandbox.sessions import TestOutcome, run_tests
from roll_core.sandbox.types import Limits

LIMITS = Limits(cpu_s=3.0)
SHORT = Limits(cpu_s=0.5, wall_s=2)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


OUTCOMES = {
    "wrong value": (TestOutcome.FAILED, "def f(x): return x", "assert f(1) == 2"),
    "wrong type": (TestOutcome.FAILED, "def f(x): return True", "assert type(f(1)) is int"),
    "list for tuple": (TestOutcome.FAILED, "def f(): return [1]", "assert f() == (1,)"),
    "unittest failure": (
        TestOutcome.FAILED,
        "def f(x): return x",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 2)\nunittest.main()",
    ),
    "unittest failure that nobody looks at": (
        TestOutcome.FAILED,
        "def f(x): return x",
        """import unittest
class T(unittest.TestCase):
    def test(self):
        self.assertEqual(f(1), 1)
        with self.subTest(1):
            self.assertEqual(f(1), 2)
unittest.main(exit=False)""",
    ),
    "swallowed failure": (
        TestOutcome.FAILED,
        "def f(x): return x",
        "assert f(1) == 1\ntry:\n    assert f(1) == 2\nexcept Exception:\n    pass",
    ),
    "should have raised": (
        TestOutcome.FAILED,
        "def f(x): return x",
        "assert f(1) == 1\ntry:\n    f(-1)\n    assert False\nexcept Exception:\n    pass",
    ),
    "failure in a thread": (
        TestOutcome.FAILED,
        "def f(x): return x",
        """import threading
assert f(1) == 1
def go(): assert f(1) == 2
t = threading.Thread(target=go)
t.start()
t.join()""",
    ),
    "no case reached": (TestOutcome.FAILED, "def f(): return []", "for x in f():\n    assert x > 0"),
    "raises": (TestOutcome.ERROR, "def f(x): raise ValueError('no')", "assert f(1) == 2"),
    "raises, and the tests swallow it": (
        TestOutcome.FAILED,
        "def f(x): raise ValueError('no')",
        "try:\n    assert f(1) == 2\nexcept Exception:\n    pass",
    ),
    "missing name": (TestOutcome.ERROR, "def g(x): return x", "assert f(1) == 2"),
    "missing name, and the tests swallow it": (
        TestOutcome.ERROR,
        "def g(x): return x",
        "assert g(1) == 1\ntry:\n    f(-1)\nexcept Exception:\n    pass",
    ),
    "does not parse": (TestOutcome.ERROR, "def f(x)\n  return x", "assert f(1) == 2"),
    "raises when loaded": (TestOutcome.ERROR, "1 / 0", "assert f(1) == 2"),
    "exits when loaded": (TestOutcome.ERROR, "def f(x): return 2\nimport sys; sys.exit(0)", "assert f(1) == 2"),
    "empty": (TestOutcome.ERROR, "", "assert f(1) == 2"),
    "None where the tests compute": (TestOutcome.ERROR, "def f(x): pass", "assert f(1) + 1 == 2"),
    "object where a value is expected": (TestOutcome.ERROR, "def f(x): return object()", "assert f(1) == 2"),
    "fork": (TestOutcome.ERROR, "import os\ndef f(x): return os.fork()", "assert f(1) == 0"),
    "loop": (TestOutcome.TIMEOUT, "def f(x):\n  while True: pass", "assert f(1) == 2"),
    "loop when loaded": (TestOutcome.TIMEOUT, "while True: pass", "assert f(1) == 2"),
    "sleep": (TestOutcome.TIMEOUT, "import time\ndef f(x): time.sleep(99)", "assert f(1) == 2"),
    "endless iterator": (TestOutcome.TIMEOUT, "def f():\n  while True: yield 1", "assert sum(f()) == 2"),
    "no assertion": (TestOutcome.NO_ASSERTION, "def f(x): return x", "x = 1"),
    "check is never called": (
        TestOutcome.NO_ASSERTION,
        "def f(x): return x",
        "def check(candidate):\n    assert candidate(1) == 1",
    ),
    "no assertion, candidate does not load": (TestOutcome.NO_ASSERTION, "1 / 0", "f(1)"),
    "tests do not parse": (TestOutcome.BROKEN, "def f(x): return x", "assert f(1) =="),
    "tests do not parse, nor does the candidate": (TestOutcome.BROKEN, "def f(", "assert f(1) =="),
    "tests need what is not there": (
        TestOutcome.BROKEN,
        "def f(x): return x",
        "import no_such_module\nassert f(1) == 1",
    ),
    "tests fail alone": (TestOutcome.BROKEN, "def f(x): return x", "assert 1 == 2\nassert f(1) == 1"),
    "tests never look": (TestOutcome.BROKEN, "def f(x): return x", "assert True"),
    "something that cannot be called": (TestOutcome.ERROR, "f = object()", "assert f(1) == 1"),
    "something without a length": (TestOutcome.ERROR, "f = object()", "assert len(f) == 1"),
    "tests derive a class": (
        TestOutcome.ERROR,
        "class A: pass",
        "class B(A):\n    pass\nassert B()",
    ),
    "tests hand over what cannot cross": (
        TestOutcome.BROKEN,
        "def f(x): return 1",
        "import re\nassert f(re.match('a', 'a')) == 1",
    ),
    "private attributes of the tests' objects": (
        TestOutcome.ERROR,
        "def f(x): return x._secret",
        "class A:\n    _secret = 3\nassert f(A()) == 3",
    ),
    "methods of the tests' objects are not replaced": (
        TestOutcome.ERROR,
        "def f(x): x.good = lambda: True",
        "class A:\n    def good(self): return False\na = A()\nf(a)\nassert a.good()",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes(sandbox, name):
    outcome, candidate, tests = OUTCOMES[name]
    report = run_tests(sandbox, candidate, tests, limits=SHORT if outcome is TestOutcome.TIMEOUT else LIMITS)
    assert report.outcome is outcome, report
    assert report.message


def test_a_reference_runs_before_the_tests_and_is_never_shadowed(sandbox):
    tests = "for x in range(5):\n    assert square(x) == reference(x)"
    reference = "def reference(x): return x * x"
    good = run_tests(sandbox, "def square(x): return x * x", tests, reference=reference, limits=LIMITS)
    cheat = "def square(x): return 0\ndef reference(x): return 0"
    assert good.outcome is TestOutcome.PASSED
    assert run_tests(sandbox, cheat, tests, reference=reference, limits=LIMITS).outcome is TestOutcome.FAILED


def test_a_reference_that_takes_the_name_of_the_entry_point_proves_nothing(sandbox):
    reference = "def square(x): return x * x"
    report = run_tests(sandbox, "def square(x): return 0", "assert square(3) == 9", reference=reference, limits=LIMITS)
    assert report.outcome is TestOutcome.BROKEN


def test_a_reference_that_fails_is_a_broken_task(sandbox):
    report = run_tests(sandbox, "def f(): return 1", "assert f() == 1", reference="1 / 0", limits=LIMITS)
    assert report.outcome is TestOutcome.BROKEN
    assert "ZeroDivisionError" in report.message


def test_an_entry_point_may_have_the_name_of_a_builtin(sandbox):
    candidate, tests = "def sum(a, b): return a * b", "assert sum(10, 15) == 150"
    assert run_tests(sandbox, candidate, tests, limits=LIMITS).outcome is not TestOutcome.PASSED
    assert run_tests(sandbox, candidate, tests, entry_point="sum", limits=LIMITS).outcome is TestOutcome.PASSED


IN_PLACE = "def f(xs): xs.sort()\ndef g(d): d['b'] = 2; d.pop('a')"


def test_arguments_changed_in_place_come_back_on_request_only(sandbox):
    tests = "xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]\nd = {'a': 1}\ng(d)\nassert d == {'b': 2}"
    assert run_tests(sandbox, IN_PLACE, tests, limits=LIMITS).outcome is TestOutcome.FAILED
    assert run_tests(sandbox, IN_PLACE, tests, limits=LIMITS, copy_back=True).outcome is TestOutcome.PASSED
    cheat, sorts = "def f(xs): xs.clear(); return xs", "xs = [3, 1]\nassert f(xs) == sorted(xs)"
    assert run_tests(sandbox, cheat, sorts, limits=LIMITS).outcome is TestOutcome.FAILED


def test_the_report_says_how_the_candidate_ended(sandbox):
    report = run_tests(sandbox, "def f(: pass", "assert f(1) == 2", limits=LIMITS)
    assert "SyntaxError" in report.message
    assert b"SyntaxError" in report.candidate.stderr
    assert report.candidate.exit_code == 1
