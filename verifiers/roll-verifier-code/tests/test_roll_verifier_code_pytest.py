from __future__ import annotations

import pytest

from roll_core.types import Status
from roll_verifier_code import normalise
from roll_verifier_code.errors import TaskError
from roll_verifier_code.verifier import CodeVerifier

GOOD = "def f(x):\n    return x + 1\n\nclass E(ValueError):\n    pass\n\ndef g(x):\n    raise E(x)\n"
BAD = "def f(x):\n    return 2\n\nE = AssertionError\n\ndef g(x):\n    return 1\n"
HEAD = "import asyncio, pytest, unittest\nfrom solution import f, g, E\n\ndef test_first():\n    assert f(1) == 2\n\n"
FILES = {
    "called in the main block": "def test_a():\n    assert f(2) == 3\nif __name__ == '__main__':\n    test_a()\n",
    "called by the main block's function": "def test_a():\n    assert f(2) == 3\ndef main():\n    test_a()\n"
    "if __name__ == '__main__':\n    main()\n",
    "helper with arguments": "def test_case(x, y):\n    assert f(x) == y\ndef test_all():\n    test_case(2, 3)\n",
    "async function": "async def test_a():\n    await asyncio.sleep(0)\n    assert f(2) == 3\n",
    "async method": "class TestA:\n    async def test_a(self):\n        await asyncio.sleep(0)\n"
    "        assert f(2) == 3\n",
    "async case": "class A(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n        assert f(2) == 3\n",
    "inherited method": "class Base:\n    def test_a(self):\n        assert f(self.x) == 3\n"
    "class TestA(Base):\n    x = 2\n",
    "case by way of another": "class Base(unittest.TestCase):\n    x = 1\nclass A(Base):\n    def test_a(self):\n"
    "        self.assertEqual(f(2), 3)\n",
    "pytest.fail in a try": "def test_a():\n    try:\n        g(0)\n"
    "        pytest.fail('no')\n    except E:\n        pass\n",
    "pytest.raises": "def test_a():\n    with pytest.raises(E):\n        g(0)\n",
    "pytest.fail in raises": "def test_a():\n    with pytest.raises(E):\n        g(0)\n        pytest.fail('no')\n",
    "mark.skip": "@pytest.mark.skip(reason='slow')\ndef test_s():\n    assert f(0) == 'x'\n"
    "def test_a():\n    assert f(2) == 3\n",
    "mark.skip without a call": "@pytest.mark.skip\nclass TestS:\n    def test_s(self):\n        assert 0 == f(0)\n"
    "class TestA:\n    def test_a(self):\n        assert f(2) == 3\n",
    "mark.skipif": "@pytest.mark.skipif(True, reason='x')\ndef test_s():\n    assert f(0) == 'x'\n"
    "@pytest.mark.skipif(False, reason='x')\ndef test_a():\n    assert f(2) == 3\n",
    "mark.xfail": "@pytest.mark.xfail\ndef test_s():\n    assert f(0) == 'x'\ndef test_a():\n    assert f(2) == 3\n",
    "param with marks": "@pytest.mark.parametrize(('x', 'y'), [pytest.param(0, 9, marks=pytest.mark.xfail), (2, 3)])\n"
    "def test_a(x, y):\n    assert f(x) == y\n",
    "pytest.skip": "def test_s():\n    pytest.skip('not here')\n    assert f(0) == 'x'\n"
    "def test_a():\n    assert f(2) == 3\n",
    "unittest.skip": "class A(unittest.TestCase):\n"
    "    @unittest.skip('x')\n    def test_s(self):\n        self.fail()\n"
    "    def test_a(self):\n        self.assertEqual(f(2), 3)\n",
    "fixture of a class": "class TestA:\n    @pytest.fixture\n    def two(self):\n        return 2\n"
    "    def test_a(self, two):\n        assert f(two) == 3\n",
    "set up by the class": "class TestA:\n    @classmethod\n    def setup_class(cls):\n        cls.x = 2\n"
    "    def test_a(self):\n        assert f(self.x) == 3\n",
    "default argument": "def test_a(x=2):\n    assert f(x) == 3\n",
}


@pytest.mark.parametrize("tests", FILES.values(), ids=FILES)
def test_every_test_is_run(tests):
    verify = CodeVerifier(limits={"time_s": 2}).verify
    right, wrong = verify(GOOD, {"test": HEAD + tests}), verify(BAD, {"test": HEAD + tests})
    assert right.status is Status.CORRECT, right
    assert (wrong.status, wrong.score) == (Status.INCORRECT, 0.0), wrong


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ("import pytest\n@pytest.mark.skip\ndef test_a():\n    assert f(1) == 2\n", "every test is skipped"),
        ("import pytest\npytestmark = pytest.mark.skip\ndef test_a():\n    assert f(1) == 2\n", "no test was run"),
        (
            "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_a():\n    assert f(1) == 2\n",
            "no test was run",
        ),
        (
            "import unittest\nclass A(unittest.TestCase):\n    async def test_a(self):\n        assert f(1) == 2\n",
            "is async",
        ),
        ("def test_a(x):\n    assert f(1) == 2\nif __name__ == '__main__':\n    test_a(1)\n", "fixture 'x'"),
    ],
)
def test_tests_that_cannot_be_run_are_the_tasks_fault(tests, says):
    verdict = CodeVerifier().verify(GOOD, {"test": tests})
    assert (verdict.status, verdict.score) == (Status.ERROR, None), verdict
    assert says in verdict.reason


def test_a_program_cannot_skip_tests():
    tests = HEAD + "class A(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2), 3)\n"
    skips = "import unittest\ndef f(x):\n    if x == 1:\n        return 2\n    raise unittest.SkipTest('x')\n"
    own = (
        "class Skipped(BaseException):\n    pass\ndef f(x):\n    if x == 1:\n        return 2\n    raise Skipped('x')\n"
    )
    for program in (skips, own):
        verdict = CodeVerifier().verify(program, {"test": tests})
        assert (verdict.status, verdict.score) == (Status.INCORRECT, 0.0), verdict


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import solution as sol\nassert sol.f(1)", "assert f(1)\n"),
        ("import solution\nassert solution.f(1)", "assert f(1)\n"),
        ("import solution, math\nassert solution.f(math.pi)", "import math\nassert f(math.pi)\n"),
        ("import solution as s\nassert getattr(s, 'f')(1) == s.f(1)", None),
        ("from solution import Solution\nsolution = Solution()\nassert solution.f(1)", None),
        ("import solution\ndef t(solution):\n    assert solution.f(1)\nt(solution)", None),
    ],
)
def test_imports_of_the_answer(text, code):
    found = normalise(text)["code"]
    if code is None:
        assert ("import solution" in found) == ("import solution" in text)
        assert "assert f(1)" not in found
    else:
        assert found.replace("pass\n", "") == code


def test_an_instance_called_as_the_module():
    tests = "from solution import Solution\ndef test_a():\n    solution = Solution()\n    assert solution.f(1) == 2\n"
    good = "class Solution:\n    def f(self, x):\n        return x + 1\n"
    assert CodeVerifier().verify(good, {"test": tests}).score == 1.0
    alias = "import solution as s\ndef test_a():\n    assert getattr(s, 'Solution')().f(1) == s.Solution().f(1) == 2\n"
    assert CodeVerifier().verify(good, {"test": alias}).score == 1.0


UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        {}\nunittest.main()\n"


def test_unittest_counts_as_asserts():
    tests = {"type": "asserts", "code": UNITTEST.format("self.assertEqual(f(2), 3)")}
    assert CodeVerifier().verify(GOOD, tests).score == 1.0
    assert CodeVerifier().verify(BAD, tests).score == 0.0
    assert (
        CodeVerifier().verify(GOOD, {"type": "asserts", "code": UNITTEST.format("f(2)")}).detail == "error cause=task"
    )
    with pytest.raises(TaskError, match="asserts nothing"):
        normalise(UNITTEST.format("f(2)"))
