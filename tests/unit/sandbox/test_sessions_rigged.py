"""Candidates that answer the tests' process with what suits the check, and tests that could lend themselves to it."""

from __future__ import annotations

import pytest

from roll_core.sandbox.sandbox import Sandbox
from roll_core.sandbox.sessions import TestOutcome, run_tests
from roll_core.sandbox.types import Limits

LIMITS = Limits(cpu_s=3.0)
SERVE = "import roll_core.sandbox.inside.serve as s\nold = s.Server._reply\n"
FORGE = (
    "(__import__('os').write(3, __import__('roll_core.sandbox.codec', fromlist=['x']).pack("
    "{'outcome': 'passed', 'message': '', 'asserts': 1})), __import__('os')._exit(0))"
)

UNPAID = {
    "arguments come back unasked": (
        SERVE + "def r(self, m):\n  a = old(self, m)\n  if m['op'] == 'call': a['args'] = {'0': []}\n  return a\n"
        "s.Server._reply = r\ndef f(xs): return []",
        "xs = [3, 1, 2]\nassert f(xs) == sorted(xs)",
    ),
    "a module whose import exits": (
        "import types\ndef f(x):\n  global f\n  f = types.ModuleType('unittest.__main__')\n  return 1",
        "import solution\nassert solution.f(1) == 1\nassert solution.f(2) == 4",
    ),
    "a module of functions that exit": (
        "import sys as game\ndef f(x): return 1",
        "assert f(1) == 1\nimport solution\nsolution.game.exit()\nassert f(2) == 4",
    ),
    "fail() caught by a class of the candidate's": (
        "E = AssertionError\ndef f(a): return a",
        "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    assert f(1) == 1\n    try:\n      f(2)\n"
        "      self.fail('no')\n    except E:\n      pass\nunittest.main()",
    ),
    "assertEqual caught by the tests": (
        "def f(a): return a",
        "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    self.assertEqual(f(1), 1)\n    try:\n"
        "      self.assertEqual(f(1), 2)\n    except Exception:\n      pass\nunittest.main()",
    ),
    "assertRaises caught by the tests": (
        "def f(a): return a",
        "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    self.assertEqual(f(1), 1)\n    try:\n"
        "      with self.assertRaises(ValueError):\n        f(1)\n    except Exception:\n      pass\nunittest.main()",
    ),
    "Exception as the candidate's class": (
        "E = Exception\ndef f(a): return a",
        "assert f(1) == 1\ntry:\n  f(2)\n  raise RuntimeError('no')\nexcept E:\n  pass",
    ),
    "what the tests raise is the candidate's class": (
        "E = RuntimeError\ndef f(a): return a",
        "assert f(1) == 1\ntry:\n  f(2)\n  raise RuntimeError('no')\nexcept E:\n  pass",
    ),
    "the same by import": (
        "E = RuntimeError\ndef f(a): return a",
        "import solution as sol\nassert sol.f(1) == 1\ntry:\n  sol.f(2)\n  raise RuntimeError('no')\n"
        "except (KeyError, sol.E):\n  pass",
    ),
    "Exception as an attribute": (
        "class B:\n  E = Exception\n  def f(s, a): return a",
        "b = B()\nassert b.f(1) == 1\ntry:\n  b.f(2)\n  raise RuntimeError('no')\nexcept B.E:\n  pass",
    ),
    "checker that the tests forgot to import": (
        "isclose = lambda *a: True\ndef f(x): return 0",
        "assert isclose(f(3), 9)",
    ),
    "numbers that change": (
        "class X:\n  n = 0\n  def __float__(s): X.n += 1; return [0.0, -2.0][X.n % 2]\ndef f(x): return X()",
        "import math\nx = f(2)\nassert math.pow(x, 1) + 2 == 0 and math.pow(x, 1) == 0.0",
    ),
    "an operator that computes the check": (
        "class X:\n  def __init__(s, n): s.n = n\n  def __mul__(s, o): return s.n\ndef root(n): return X(n)",
        "r = root(2)\nassert abs(r * r - 2) < 1e-9",
    ),
    "a number from an operator's object": (
        "class X:\n  def __init__(s, n): s.n = n\n  def __mul__(s, o): return s\n  def __float__(s): return 2.0\n"
        "def root(n): return X(n)",
        "import math\nr = root(2)\nassert math.isclose(r * r, 2)",
    ),
    "list with other items": (
        "class L(list):\n  def __getitem__(s, i): return i\ndef f(xs): return L(xs)",
        "xs = [3, 1, 2]\nr = f(xs)\nassert all(r[i] <= r[i + 1] for i in range(2)) and sorted(r) == sorted(xs)",
    ),
    "list with another length": (
        "class L(list):\n  n = 0\n  def __len__(s): L.n += 1; return 3 if L.n == 1 else 0\n"
        "  def __iter__(s): return iter(())\ndef f(x): return L()",
        "r = f(1)\nassert len(r) == 3\nfor a, b in zip(r, [1, 2, 3]):\n  assert a == b",
    ),
    "sequence with other items": (
        "class L:\n  def __init__(s, x): s.x = x\n  def __len__(s): return len(s.x)\n"
        "  def __iter__(s): return iter(s.x)\n"
        "  def __getitem__(s, i): return i\ndef f(xs): return L(xs)",
        "xs = [3, 1, 2]\nr = f(xs)\nassert all(r[i] <= r[i + 1] for i in range(2)) and sorted(r) == sorted(xs)",
    ),
    "sequence with other parts each time": (
        "class L:\n  n = 0\n  def __init__(s, x): s.x = x\n  def __len__(s): return len(s.x)\n"
        "  def __iter__(s): L.n += 1; return iter(s.x if L.n == 1 else sorted(s.x))\ndef f(xs): return L(xs)",
        "xs = [3, 1, 2]\nr = f(xs)\nassert len(r) == 3 and list(r) == xs and list(r) == sorted(xs)",
    ),
    "iterator that goes on": (
        "class I:\n  def __init__(s): s.n = 0\n  def __iter__(s): return s\n  def __next__(s):\n    s.n += 1\n"
        "    if s.n % 3 == 0: raise StopIteration\n    return s.n % 3\ndef f(): return I()",
        "r = f()\nassert list(r) == [1, 2] and list(r) == [1, 2]",
    ),
    "dict with other values": (
        "class D(dict):\n  def __getitem__(s, k): return 1\n  def get(s, k): return 1\ndef f(): return D(a=2)",
        "r = f()\nassert sum(r.values()) == 2 and r['a'] == 1",
    ),
    "dict with another get": (
        "class D(dict):\n  def get(s, k): return 1\ndef f(): return D(a=2)",
        "r = f()\nassert sum(r.values()) == 2 and r.get('a') == 1",
    ),
    "text that lies": (
        "class I(int):\n  def __str__(s): return '1'\n  __repr__ = __str__\n  def __format__(s, f): return '1'\n"
        "def f(n): return I(n + 1)",
        "r = f(128)\nassert r > 128 and (str(r) == '1' or repr(r) == '1' or f'{r}' == '1')",
    ),
    "failure of a call-back that is lost": (
        "def f(cb):\n  try: cb(1)\n  except BaseException: pass\n  return 1",
        "def cb(x):\n  if x != 5: raise AssertionError('bad')\nassert f(cb) == 1",
    ),
    "failure on a condition within a context of the candidate's": (
        "class C:\n  def __enter__(s): return s\n  def __exit__(s, *a): return True\ndef f(x): return 1",
        "assert f(1) == 1\nwith C():\n  if f(2) != 4:\n    raise ValueError('bad')",
    ),
    "fail() within a context of the candidate's": (
        "class C:\n  def __enter__(s): return s\n  def __exit__(s, *a): return True\ndef f(x): return 1",
        "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    assert f(1) == 1\n    with C():\n"
        "      self.fail('x')\nunittest.main()",
    ),
    "text for eval": (f'def f(x): return "{FORGE}"', "assert eval(f(3)) == 9"),
    "text for eval, from a name": (f'T = "{FORGE}"', "assert eval(T) == 9"),
    "text for a function that evaluates": (
        f'def f(g): return g("{FORGE}")',
        "def run(text): return eval(text)\nassert f(run) == 9",
    ),
    "eval to call": (f'def f(g): return g("{FORGE}")', "assert f(eval) == 9"),
    "getattr to call": ("def f(g, h): return g(h, '__globals__')", "def h(): pass\nassert f(getattr, h) == 9"),
    "pickle": (
        "import pickle, os\nclass P:\n  def __reduce__(s): return os._exit, (0,)\ndef f(x): return pickle.dumps(P())",
        "import pickle\nassert pickle.loads(f(1)) == 1",
    ),
    "fallback for what is not there": (
        "def g(): pass",
        "try:\n  from solution import f\nexcept ImportError:\n  f = lambda x: 4\nassert f(2) == 4",
    ),
}

SCORED = {
    "import of what is not there": ("def g(): pass", "from solution import f\nassert f(1) == 1"),
    "attribute that is not there": ("def g(): pass", "import solution\nassert solution.f(1) == 1"),
    "coroutine": ("async def enc(s): return s\ndef dec(s): return s", "assert dec(enc('a')) == 'a'"),
    "module": ("import math as inc\ndef app(f, x): return x", "assert app(inc, 3) == 4"),
    "what its value leads to": (
        "def f(x): return 'text'\ndef g(x): return 1",
        "assert f(1)\nassert g(f(1).format) == 2",
    ),
}

HONEST = {
    "None is not an object": (
        "class L:\n  head = None\n  def __eq__(s, o): return 1",
        "l = L()\nassert l.head == None\nassert l != None",
    ),
    "enums": (
        "from enum import Enum, IntEnum\nclass C(Enum):\n  R = 1\n  G = 2\nclass I(IntEnum):\n  A = 1\n"
        "def f(x): return C(x)\ndef d(): return {C.R: 1, C.G: 2}",
        "assert f(1) != C.G and f(1) == C.R and f(2) in (C.R, C.G) and f(2) not in [C.R]\n"
        "assert d()[C.R] == 1 and {C.G: 5}[f(2)] == 5 and len({f(1), f(2), f(1)}) == 2\n"
        "assert repr(I.A) == '<I.A: 1>' and str(I.A) == '1'",
    ),
    "objects without equality": ("class A: pass", "a = A()\nassert a != A() and a == a and a in {a}"),
    "named tuples": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')",
        "assert str(P(1, 'a')) == \"P(x=1, y='a')\" == repr(P(1, 'a'))",
    ),
    "generic classes": (
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass S(Generic[T]):\n  def f(s): return 3",
        "assert S[int]().f() == 3",
    ),
    "cache on an ordered dict": (
        "from collections import OrderedDict\nclass C(OrderedDict):\n"
        "  def __init__(s, n): super().__init__(); s.n = n\n"
        "  def get(s, k):\n    if k not in s: return -1\n    s.move_to_end(k)\n    return s[k]\n  def put(s, k, v):\n"
        "    s[k] = v\n    s.move_to_end(k)\n    if len(s) > s.n: s.popitem(last=False)",
        "c = C(2)\nc.put(1, 1)\nc.put(2, 2)\nassert c.get(1) == 1\nc.put(3, 3)\nassert c.get(2) == -1 and len(c) == 2\n"
        "assert 3 in c and list(c) == [1, 3] and list(c.values()) == [1, 3] and c[3] == 3",
    ),
    "sequence that grows": (
        "class S:\n  def __init__(s): s.x = []\n  def push(s, x): s.x.append(x)\n  def __len__(s): return len(s.x)\n"
        "  def __iter__(s): return iter(s.x)\n  def __getitem__(s, i): return s.x[i]\n"
        "  def __float__(s): return 1.0 * len(s.x)",
        "s = S()\nassert len(s) == 0 and not s and float(s) == 0\ns.push(4)\n"
        "assert len(s) == 1 and s[0] == 4 and list(s) == [4]\n"
        "assert float(s) == 1\ns.push(5)\n"
        "assert [*s] == [4, 5] and s[-1] == 5 and s[:1] == [4] and list(reversed(s)) == [5, 4]",
    ),
    "text of the tests": (
        "def f(x): return x + 1",
        "assert f(0) == 1\nassert eval('f(1)') == 2\nexec('y = f(2)')\nassert y == 3",
    ),
    "expression of the candidate's": ("def f(n): return f'{n} * 2 + 1'", "assert eval(f(3)) == 7"),
    "pickled data": (
        "import pickle\ndef f(x): return pickle.dumps(x)",
        "import pickle\nassert pickle.loads(f([1, {2}])) == [1, {2}]",
    ),
    "expected failure": (
        "def f(x): return x",
        "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): self.assertEqual(f(1), 1)\n"
        "  @unittest.expectedFailure\n  def test_b(self): self.assertEqual(f(1), 2)\nunittest.main()",
    ),
    "own exception class": (
        "class E(ValueError): pass\ndef f(x):\n  if x < 0: raise E('no')\n  return x",
        "assert f(1) == 1\ntry:\n  f(-1)\n  raise RuntimeError('no')\nexcept E:\n  pass",
    ),
    "an alias of a built-in exception": (
        "E = ValueError\ndef f(x):\n  if x < 0: raise E('no')\n  return x",
        "try:\n  f(-1)\n  assert False\nexcept E as e:\n  assert str(e) == 'no'",
    ),
    "plain value by import": ("VALUE = 5", "import solution\nassert solution.VALUE == 5"),
    "coroutine handed back": (
        "import asyncio\nasync def f(x): return x\ndef run(c): return asyncio.run(c)",
        "assert run(f(3)) == 3",
    ),
    "alias of a module": (
        "import datetime as dt\ndef f(): return dt.date(2020, 1, 2)",
        "assert f() == dt.date(2020, 1, 2)",
    ),
    "functions to call": (
        "def each(f, xs): return [f(x) for x in xs]\ndef log(out, x): out(x)",
        "import operator, math\nassert each(str, [1]) == ['1'] and each(math.sqrt, [4.0]) == [2.0]\n"
        "seen = []\nlog(seen.append, 3)\n"
        "assert seen == [3] and each(operator.itemgetter(0), ['ab']) == ['a']",
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


@pytest.mark.parametrize("name", UNPAID)
def test_a_rigged_candidate_does_not_pass(sandbox, name):
    candidate, tests = UNPAID[name]
    report = run_tests(sandbox, candidate, tests, limits=LIMITS)
    tasks_fault = name in ("eval to call", "getattr to call")
    held = [TestOutcome.BROKEN] if tasks_fault else [TestOutcome.FAILED, TestOutcome.ERROR]
    assert report.outcome in held, report


@pytest.mark.parametrize("name", SCORED)
def test_what_the_candidate_leads_to_is_its_own_doing(sandbox, name):
    candidate, tests = SCORED[name]
    report = run_tests(sandbox, candidate, tests, limits=LIMITS)
    assert report.outcome in (TestOutcome.FAILED, TestOutcome.ERROR), report


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidates_of_the_same_kinds_pass(sandbox, name):
    candidate, tests = HONEST[name]
    report = run_tests(sandbox, candidate, tests, limits=LIMITS)
    assert report.outcome is TestOutcome.PASSED, (report.message, report.tests.stderr.decode())


def test_a_library_that_is_not_there_is_the_tasks_fault(sandbox):
    candidate = "class sympy:\n  simplify = lambda *a: True\ndef f(x): return 0"
    report = run_tests(sandbox, candidate, "assert sympy.simplify(f(1), 9)", limits=LIMITS)
    assert report.outcome in (TestOutcome.BROKEN, TestOutcome.ERROR)


def test_messages_can_be_printed(sandbox):
    report = run_tests(sandbox, r"def f(x): raise ValueError('\ud800\x1b[31m')", "assert f(1) == 1", limits=LIMITS)
    assert report.outcome is TestOutcome.ERROR
    assert report.message.isprintable()
    assert report.message.encode("utf-8")
