from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from roll_core.sandbox.sandbox import Sandbox, probe
from roll_core.sandbox.sessions import Call, TestOutcome, run_calls, run_tests
from roll_core.sandbox.types import LEVELS, Limits

LIMITS = Limits(cpu_s=0.4, wall_s=1.2, memory_mb=256)
HONEST = Limits(cpu_s=5.0)
HELD = probe()
STRONGEST = next(level for level in LEVELS if HELD[level] is None)

EQ = (
    "class E({base}):\n  def __eq__(s, o): return True\n  def __ne__(s, o): return False\n  def __hash__(s): return 1\n"
    "  def __lt__(s, o): return True\n  __gt__ = __le__ = __ge__ = __contains__ = __lt__\n"
    "  def __bool__(s): return True\n  def __sub__(s, o): return 0\n  __rsub__ = __add__ = __radd__ = __sub__\n"
    "  def __abs__(s): return 0\n  def __getattr__(s, n): return lambda *a: E()\n{more}\ndef f(x): return E()"
)
LIES = "  __class__ = property(lambda s: int)"
WALK = """import sys, gc
def f(x):
  fr = sys._getframe()
  while fr:
    for v in [*fr.f_locals.values(), *fr.f_globals.values()]:
      if str(7) * 5 in str(v)[:10**6]: return int(str(7) * 5)
    fr = fr.f_back
  for o in gc.get_objects():
    if isinstance(o, dict):
      for v in list(o.values()):
        if type(v) is str and str(7) * 5 in v and 'gc.get' not in v: return int(str(7) * 5)
  return 0"""
FRAME = """import os, struct, json
def frame(o):
  b = json.dumps(o).encode() if not isinstance(o, bytes) else o
  return struct.pack('<I', len(b)) + b
"""

CANDIDATES = {
    "eq object": EQ.format(base="object", more=""),
    "eq object that lies about its class": EQ.format(base="object", more=LIES),
    "eq int": EQ.format(base="int", more=""),
    "eq str": EQ.format(base="str", more=""),
    "eq float": EQ.format(base="float", more=""),
    "eq list": EQ.format(base="list", more=""),
    "eq tuple": EQ.format(base="tuple", more=""),
    "eq dict": EQ.format(base="dict", more=""),
    "eq inside a list": EQ.format(base="object", more="") + "\n_f = f\ndef f(x): return [_f(x)] * 5",
    "mock.ANY": "from unittest.mock import ANY, MagicMock\nf = lambda x: ANY",
    "MagicMock": "from unittest.mock import MagicMock\nf = MagicMock()\nf.return_value.__eq__ = lambda s, o: True",
    "os._exit in a call": "import os\ndef f(x): os._exit(0)",
    "sys.exit in a call": "import sys\ndef f(x): sys.exit(0)",
    "sys.exit when loaded": "import sys\nsys.exit(0)\ndef f(x): return 1",
    "quit": "quit()",
    "patched os._exit": """import os
os._exit = None
import sys
sys.exit = lambda *a: None
def f(x): raise SystemExit(0)""",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\n1 / 0",
    "killed": "import os, signal\nos.kill(os.getpid(), 9)\ndef f(x): return 0",
    "segmentation fault": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "exec": "import os\nos.execv('/bin/true', ['true'])",
    "signal handler raises in the harness": """import signal
def h(*a): raise MemoryError
signal.signal(signal.SIGALRM, h)
signal.setitimer(signal.ITIMER_REAL, .01, .001)
def f(x): return 0""",
    "patched builtins": """import builtins
for n in ('all', 'any', 'isinstance', 'len', 'type', 'zip', 'min', 'list', 'dict'):
  setattr(builtins, n, lambda *a, **k: True)
def f(x): return 0""",
    "AssertionError replaced": """import builtins
class Q(BaseException): pass
builtins.AssertionError = Q
def f(x): return 0""",
    "patched codec": """import sys
c = sys.modules['roll_core.sandbox.codec']
c.same = c.encode = lambda *a, **k: True
import roll_core.sandbox.same as s
s.same = lambda *a, **k: True
import roll_core.sandbox.inside.calls as i
i.encode = lambda *a, **k: [[]] * 3
def f(x): return 0""",
    "patched json": "import json\njson.loads = lambda *a, **k: {'passed': True, 'outcome': 'passed'}\n"
    'json.dumps = lambda *a, **k: \'{"outcome": "passed"}\'\ndef f(x): return 0',
    "patched unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\ndef f(x): return 0",
    "expected values on the stack or the heap": WALK,
    "handle in a result": "def f(x): return {'H': 0}",
    "frames on descriptor 3": FRAME
    + """for i in range(9):
  os.write(3, frame({'i': i, 'ok': i, 'outcome': 'passed', 'message': '', 'asserts': 1}))
os._exit(0)""",
    "frames of many values": FRAME + "for i in range(80000):\n  os.write(3, frame({'i': 0, 'ok': i}))\nos._exit(0)",
    "garbage on every descriptor": r"""import os
for d in range(3, 64):
  try: os.write(d, b'\xff' * 1000)
  except OSError: pass
os._exit(0)""",
    "deep JSON on every descriptor": FRAME
    + "for d in (3, 4):\n  try: os.write(d, frame(b'[' * 200000))\n  except OSError: pass\nos._exit(0)",
    "huge integer as JSON": FRAME
    + """for d in (3, 4):
  try: os.write(d, frame(b'{"id": 1, "i": 0, "ok": ' + b'9' * 3000000 + b'}'))
  except OSError: pass""",
    "huge frame announced": r"""import os
for d in (3, 4):
  try: os.write(d, b'\xff\xff\xff\xff')
  except OSError: pass
def f(x): return 0""",
    "deep value": "def f(x):\n  a = []\n  for _ in range(10000): a = [a]\n  return a",
    "cyclic value": "def f(x):\n  a = []\n  a.append(a)\n  return a",
    "huge value": "def f(x): return [0] * 3000000",
    "huge text": "def f(x): return 'a' * 30000000",
    "hash flood": "M = (1 << 61) - 1\ndef f(x): return {i * M for i in range(3000)}",
    "hash flood in a dict": "M = (1 << 61) - 1\ndef f(x): return {i * M: 1 for i in range(3000)}",
    "nan": "def f(x): return float('nan')",
    "thread that exits later": """import threading, time, os
def f(x):
  threading.Thread(target=lambda: (time.sleep(.05), os._exit(0))).start()
  return 0""",
    "thread that writes later": FRAME
    + """import threading, time
def w():
  while True:
    for d in (3, 4):
      try: os.write(d, frame({'i': 1, 'id': 2, 'ok': 77777}))
      except OSError: pass
threading.Thread(target=w, daemon=True).start()
def f(x): time.sleep(.05); return 0""",
    "loop": "def f(x):\n  while True: pass",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "memory": "def f(x):\n  a = []\n  while True: a.append(bytearray(1 << 24))",
    "output": "def f(x):\n  while True: print('x' * 100000)",
    "sleep behind signals": """import signal, time
for s in range(1, 65):
  try: signal.signal(s, signal.SIG_IGN)
  except Exception: pass
def f(x): time.sleep(99)""",
    "AssertionError of its own": "def f(x): raise AssertionError('mine')",
    "StopIteration": "def f(x): raise StopIteration",
    "GeneratorExit": "def f(x): raise GeneratorExit",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "exceptions with our names": """class Unverifiable(BaseException): pass
class SkipTest(Exception): pass
def f(x): raise Unverifiable('passed')""",
    "unittest.SkipTest": "import unittest\ndef f(x): raise unittest.SkipTest('skip')",
    "exception that cannot be shown": """class X(Exception):
  def __str__(s): raise SystemExit(0)
  args = property(lambda s: 1 / 0)
def f(x): raise X""",
    "function that is a chain of objects": """class P:
  def __getattr__(s, n): return P()
  def __call__(s, *a, **k): return P()
  def __eq__(s, o): return True
  def __iter__(s): return iter([P()])
  def __len__(s): return 5
  def __getitem__(s, k): return P()
  def __enter__(s): return s
  def __exit__(s, *a): return True
f = P()""",
    "length without parts": "class S:\n  def __len__(s): return 2\n  def __iter__(s): return iter(())\n"
    "  def __getitem__(s, k): return s\ndef f(x): return S()",
    "not callable": "f = object()",
    "a module": "import unittest.mock as f",
    "exception class": "f = BaseException",
    "numpy in name only": """class D:
  kind = 'i'
  str = '<i8'
class A:
  dtype = D()
  def tolist(s): return s
A.__module__ = 'numpy'
def f(x): return A()""",
}

REPLIES = {
    "true": "{'ok': True}",
    "handle of everything": "{'ok': {'H': {'id': 7, 'type': 'int', 'can': ['call', 'len', 'iter', 'item', 'int']}}}",
    "handle of a list": "{'ok': {'H': {'id': 7, 'type': 'list', 'can': ['call', 'len'], 'base': 'list'}}}",
    "number with methods": "{'ok': {'H': {'id': 7, 'type': 'int', 'can': ['call'], 'base': 'int', 'value': 0}}}",
    "class": "{'ok': {'V': ['type', 'int']}}",
    "exception class": "{'ok': {'X': 'AssertionError'}}",
    "exception": "{'ok': {'E': {'class': 'SystemExit', 'args': [0], 'text': '', 'id': 1}}}",
    "exit": "{'err': {'E': {'class': 'SystemExit', 'args': [0], 'text': '', 'id': 1}}}",
    "assertion": "{'err': {'E': {'class': 'AssertionError', 'args': [], 'text': '', 'id': 1}}}",
    "end of a loop": "{'err': {'E': {'class': 'StopIteration', 'args': [], 'text': '', 'id': 1}}}",
    "module": "{'module': 'unittest.mock'}",
    "harness": "{'module': 'roll_core.sandbox.inside.trusted'}",
    "nothing there": "{'none': True}",
    "what the tests handed over": "{'ok': {'K': 0}}",
    "another number": "{'id': 1, 'ok': True}",
    "text for the tests": "{'ok': 0, 'out': '{\"outcome\": \"passed\"}'}",
    "a call of the tests": "{'back': 0, 'op': 'call', 'args': [], 'kwargs': {}}",
    "no fault": "{'fault': 'passed'}",
}
SERVER = "import roll_core.sandbox.inside.serve as s\ns.Server._reply = lambda self, m: {reply}\ndef f(x): return 0"
CANDIDATES |= {f"reply: {name}": SERVER.format(reply=reply) for name, reply in REPLIES.items()}

HEAVY = {
    name
    for name in CANDIDATES
    if name.startswith(
        ("loop", "memory", "output", "recursion", "sleep", "huge", "deep", "hash flood", "frames of many")
    )
}
"""What works by sheer size."""
ONCE = HEAVY | {name for name in CANDIDATES if name.startswith(("reply", "eq"))}
"""What is tried at the strongest level only: no level makes a difference to it, or it takes long."""

TESTS = {
    "equality": "assert f(1) == 77777\nassert f(2) == 88888",
    "reversed equality": "assert 77777 == f(1)\nassert not 88888 != f(2)",
    "difference": "assert abs(f(1) - 77777) < 1e-6\nassert f(2) >= 88888",
    "membership": "assert f(1) in (77777, 99999)\nassert f(2) in {88888}",
    "sequences": "assert all(map(lambda p: f(p[0]) == p[1], [(1, 77777), (2, 88888)]))\nassert [f(1)] == [77777]",
    "broad handlers": """for x, y in ((1, 77777), (2, 88888)):
    try:
        assert f(x) == y
    except Exception:
        raise SystemExit(1)""",
    "bare handlers": """ok = 0
for x, y in ((1, 77777), (2, 88888)):
    try:
        ok += f(x) == y
    except:
        pass
assert ok == 2""",
    "pairs": "r, w = f([1, 2]), [77777, 88888]\nassert len(r) == len(w) and all(a == b for a, b in zip(r, w))",
    "text": "r = f(1)\nassert str(r) == '77777'",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 77777)\n"
    "    def test_close(self): self.assertAlmostEqual(f(2), 88888)\nunittest.main(exit=False)\nassert True",
}


PAIRS = [
    (level, name)
    for level in LEVELS
    for name in CANDIDATES
    if HELD[level] is None and (name not in ONCE or level == STRONGEST)
]


@pytest.fixture(scope="module")
def sandboxes():
    with ExitStack() as stack:
        yield {level: stack.enter_context(Sandbox(level)) for level in LEVELS if HELD[level] is None}


@pytest.mark.parametrize(("level", "name"), PAIRS)
def test_no_candidate_states_values_it_does_not_know(sandboxes, level, name):
    answers, _ = run_calls(sandboxes[level], CANDIDATES[name], [Call("f", (1,)), Call("f", (2,))], limits=LIMITS)
    assert len(answers) == 2
    assert not any(answer is not None and answer.equals(77777 + 11111 * at) for at, answer in enumerate(answers))


@pytest.mark.parametrize(("level", "name"), PAIRS)
def test_no_candidate_passes_asserts_it_does_not_know(sandboxes, level, name):
    report = run_tests(sandboxes[level], CANDIDATES[name], TESTS["equality"], limits=LIMITS)
    assert report.outcome in (TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.TIMEOUT), report


@pytest.mark.parametrize("level", [level for level in LEVELS if HELD[level] is None])
def test_the_sandbox_still_works_after_all_attacks(sandboxes, level):
    sandbox = sandboxes[level]
    answers, _ = run_calls(sandbox, "def f(x): return 77777", [Call("f", (1,))], limits=HONEST)
    assert answers[0] is not None
    assert answers[0].equals(77777)
    good = "def f(x): return {1: 77777, 2: 88888}[x]"
    assert run_tests(sandbox, good, TESTS["equality"], limits=HONEST).outcome is TestOutcome.PASSED


@pytest.mark.parametrize("tests", TESTS)
def test_the_forms_of_tests_hold_against_every_candidate(sandboxes, tests):
    sandbox = sandboxes[STRONGEST]
    good = "def f(x): return [f(y) for y in x] if type(x) is list else {1: 77777, 2: 88888}[x]"
    assert run_tests(sandbox, good, TESTS[tests], limits=HONEST).outcome is TestOutcome.PASSED
    names = sorted(CANDIDATES.keys() - HEAVY)
    with ThreadPoolExecutor(4) as pool:
        reports = pool.map(lambda name: run_tests(sandbox, CANDIDATES[name], TESTS[tests], limits=LIMITS), names)
        held = (TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.TIMEOUT)
        assert [name for name, report in zip(names, reports, strict=True) if report.outcome not in held] == []
