from __future__ import annotations

import pytest

from roll_core.sandbox.sandbox import Sandbox
from roll_core.sandbox.sessions import TestOutcome, run_tests
from roll_core.sandbox.types import Limits

LIMITS = Limits(cpu_s=3.0)

POINT = """
class Point:
    origin = (0, 0)
    def __init__(self, x, y=0): self.x, self.y = x, y
    def move(self, dx, *, dy=0):
        self.x += dx; self.y += dy
        return self
    def __repr__(self): return f"Point({self.x}, {self.y})"
    def __len__(self): return 2
    def __getitem__(self, at): return (self.x, self.y)[at]
    def __iter__(self): return iter((self.x, self.y))
    def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
    def __neg__(self): return Point(-self.x, -self.y)
    @classmethod
    def of(cls, pair): return cls(*pair)
    @property
    def norm(self): return abs(self.x) + abs(self.y)
"""

ERRORS = """
class ShopError(ValueError):
    def __init__(self, message, code=7):
        super().__init__(message)
        self.code = code
class Empty(ShopError): pass
class Loud(BaseException): pass
def buy(n):
    if n < 0: raise ShopError(f"bad {n}", code=n)
    if n == 0: raise Empty("empty")
    if n == 99: raise Loud("loud")
    return n
def parse(text):
    import json
    return json.loads(text)
def need(x):
    assert x > 0, "need more"
    return x
def stop(): raise SystemExit(3)
"""

PASSING = {
    "plain values": ("def f(x): return x + 1", "assert f(1) == 2\nassert f(1) != 3"),
    "types are kept": (
        """def f(): return (1, 2)
def g(): return True
def h(): return 1
def s(): return {1, 2}, frozenset({3}), b'x', 2j""",
        "assert f() == (1, 2) and f() != [1, 2]\nassert g() is True and type(g()) is bool\nr = h()\n"
        "assert type(r) is int and r is not True\nassert s() == ({1, 2}, frozenset({3}), b'x', 2j)",
    ),
    "big and odd numbers": (
        "def f(n): return 7 ** n\ndef nan(): return float('nan')\ndef inf(): return -float('inf'), -0.0",
        """assert f(300) == 7 ** 300
x = nan()
assert x != x
assert inf()[0] == -float('inf')
assert str(inf()[1]) == '-0.0'""",
    ),
    "text": ("def f(s): return s[::-1]", "assert f('añ\\ud83d\\x00') == '\\x00\\ud83dña'"),
    "nested": ("def f(x): return {'a': [x, (x, {x})], 2: None}", "assert f(3) == {'a': [3, (3, {3})], 2: None}"),
    "check(candidate)": (
        "def entry(x): return x * 2",
        """METADATA = {}
def check(candidate):
    for i in range(3):
        assert candidate(i) == 2 * i
check(entry)""",
    ),
    "methods, attributes, operators": (
        POINT,
        """p = Point(1)
assert p.x == 1 and p.move(2, dy=5).y == 5
assert p.norm == 8
assert Point.origin == (0, 0)
assert len(p) == 2 and p[1] == 5 and list(p) == [3, 5]
assert str(p) == 'Point(3, 5)' == repr(p) == f'{p}'
p.x = 10
assert p.x == 10
q = p + Point.of((1, 1))
assert (q.x, q.y) == (11, 6)
assert (-q).x == -11
assert isinstance(q, Point) and type(q).__name__ == 'Point'
assert hasattr(q, 'move') and not hasattr(q, 'z')
del p.x
try:
    p.x
    assert False
except AttributeError:
    pass""",
    ),
    "linked objects": (
        "class Node:\n  def __init__(s, v, n=None): s.v, s.n = v, n\ndef make(xs):\n  h = None\n"
        "  for x in reversed(xs): h = Node(x, h)\n  return h\ndef rev(h):\n  p = None\n"
        "  while h: h.n, p, h = p, h, h.n\n  return p",
        "def values(h):\n    out = []\n    while h:\n        out.append(h.v)\n        h = h.n\n    return out\n"
        "assert values(rev(make([1, 2, 3]))) == [3, 2, 1]\nn = Node(1, Node(2))\nassert n.n is n.n and n.n.n is None",
    ),
    "exceptions": (
        ERRORS,
        """try:
    buy(-2)
    assert False
except ShopError as e:
    assert e.code == -2 and str(e) == 'bad -2'
try:
    buy(0)
    assert False
except ShopError as e:
    assert isinstance(e, Empty) and e.args == ('empty',)
try:
    buy(0)
    assert False
except ValueError:
    pass
caught = False
try:
    try:
        buy(99)
    except Exception:
        assert False
except Loud:
    caught = True
assert caught
assert issubclass(Empty, ShopError) and ShopError('x', code=3).code == 3
try:
    need(-1)
    assert False, 'no error'
except AssertionError as e:
    assert str(e) == 'need more'
try:
    {}['a'] if buy(1) else 0
except KeyError as e:
    assert str(e) == "'a'"
import json
try:
    parse('[')
    assert False
except json.JSONDecodeError:
    pass
try:
    stop()
    assert False
except SystemExit as e:
    assert e.code == 3""",
    ),
    "unittest": (
        ERRORS,
        """import unittest
class T(unittest.TestCase):
    def test_buy(self):
        self.assertEqual(buy(3), 3)
        with self.assertRaises(ShopError):
            buy(-1)
        self.assertRaises(ValueError, buy, 0)
if __name__ == '__main__':
    unittest.main()""",
    ),
    "unittest without exit": (
        "def square(x): return x * x",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(square(3), 9)\n"
        "r = unittest.main(exit=False, argv=['x']).result\nassert r.wasSuccessful() and r.testsRun == 1",
    ),
    "generators": (
        "def count():\n  n = 0\n  while True:\n    yield n\n    n += 1\ndef three(): yield from 'abc'\n"
        "class It:\n  def __init__(s): s.n = 0\n  def __iter__(s): return s\n"
        "  def __next__(s):\n    s.n += 1\n    if s.n > 3: raise StopIteration\n    return s.n",
        """import itertools, types
assert list(itertools.islice(count(), 3)) == [0, 1, 2]
assert list(three()) == ['a', 'b', 'c']
g = three()
assert next(g) == 'a' and isinstance(g, types.GeneratorType)
assert sum(It()) == 6
assert next(iter([]), 5) == 5
assert next(It()) == 1""",
    ),
    "context managers": (
        """class C:
  def __enter__(s): s.on = True; return s
  def __exit__(s, t, e, tb): s.on = False; return t is KeyError""",
        "c = C()\nwith c as d:\n    assert d is c and c.on\nassert not c.on\nwith C():\n    raise KeyError('x')\n"
        "try:\n    with C():\n        raise ValueError\n    assert False\nexcept ValueError:\n    pass",
    ),
    "call-backs": (
        """def apply(f, *xs): return [f(x) for x in xs]
def twice(f): return lambda x: f(f(x))
def retry(f, n, kind=ValueError):
  for _ in range(n):
    try: return f()
    except kind: pass
  return None
import functools
def memo(f):
  seen = {}
  @functools.wraps(f)
  def g(*a):
    if a not in seen: seen[a] = f(*a)
    return seen[a]
  return g
def total(it): return sum(it)
def same(f): return f
def run(f): return f()""",
        """assert apply(lambda x: x * x, 1, 2, 3) == [1, 4, 9]
assert twice(lambda x: x + 3)(1) == 7
assert apply(len, 'ab', 'c') == [2, 1]
tries = []
def flaky():
    tries.append(1)
    if len(tries) < 3:
        raise ValueError('no')
    return 'yes'
assert retry(flaky, 5) == 'yes' and len(tries) == 3
@memo
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
assert fib(20) == 6765 and fib.__name__ == 'fib'
assert total(x for x in range(4)) == 6
assert total(iter([1, 2])) == 3
assert same(flaky) is flaky
class Boom(Exception):
    pass
def boom():
    raise Boom('b')
try:
    run(boom)
    assert False
except Boom as e:
    assert e.args == ('b',)
assert apply(str, 1) == ['1'] and retry(boom, 2, Exception) is None
assert list(map(twice(abs), [-1])) == [1]""",
    ),
    "objects of the tests": (
        """class Node:
  def __init__(s, val, next=None): s.val, s.next = val, next
def total(n):
  t = 0
  while n is not None: t, n = t + n.val, n.next
  return t
def push(n, v): return Node(v, n)
def cut(n): n.next = Node(9); n.val += 1; return n
def twice(p): return p.scale(2), p.size
def same(a, b): return a is b, a == b, a.next is a.next""",
        """class ListNode:
    def __init__(self, val, next=None):
        self.val, self.next = val, next
class P:
    def __init__(self, n): self.n = n
    def scale(self, k): return P(self.n * k)
    @property
    def size(self): return self.n
xs = ListNode(1, ListNode(2, ListNode(3)))
assert total(xs) == 6
y = push(xs, 0)
assert y.val == 0 and y.next is xs
assert same(xs, xs) == (True, True, True) and same(xs, xs.next)[0] is False
assert cut(xs) is xs and xs.val == 2 and xs.next.val == 9 and xs.next.next is None
p, n = twice(P(4))
assert p.n == 8 and n == 4 and isinstance(p, P)""",
    ),
    "library values": (
        """from fractions import Fraction
from decimal import Decimal
from collections import *
import datetime
def f(k): return {'f': Fraction(1, 2), 'd': Decimal('0.10'), 'c': Counter('aab'), 'q': deque([1, 2], 2), 'r': range(3),
  'o': OrderedDict([(1, 2)]), 't': datetime.date(2020, 1, 2), 'dt': datetime.timedelta(days=1, seconds=2),
  'dd': defaultdict(int, a=1),
  'when': datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc)}[k]
def add(a, b): return a + b
def kind(x): return type(x)""",
        """import fractions, decimal, collections, datetime
assert f('f') == fractions.Fraction(1, 2)
assert f('d') == decimal.Decimal('0.1') and str(f('d')) == '0.10'
assert f('c') == collections.Counter('aab') and f('c').most_common(1) == [('a', 2)]
assert f('q') == collections.deque([1, 2]) and f('q').maxlen == 2
assert f('r') == range(3) and f('o') == {1: 2}
assert f('t') == datetime.date(2020, 1, 2)
assert f('dt').total_seconds() == 86402
assert f('dd') == {'a': 1} and f('dd')['z'] == 0
assert f('when').tzinfo is datetime.timezone.utc
assert add(fractions.Fraction(1, 2), fractions.Fraction(1, 3)) == fractions.Fraction(5, 6)
assert kind(3) is int and kind(True) is bool""",
    ),
    "subclasses of built-in types": (
        """from collections import namedtuple
from enum import Enum, IntEnum
P = namedtuple('P', 'x y')
class E(IntEnum):
  A = 1
class Color(Enum):
  RED = 1
  BLUE = 2
def p(): return P(1, 2)
def e(): return E.A
def color(n): return Color(n)
class Stack(list):
  def push(s, x): s.append(x)
def s(text):
  class T(str): pass
  return T(text)""",
        """assert p() == (1, 2) and p().x == 1 and p()._asdict() == {'x': 1, 'y': 2}
assert isinstance(p(), tuple)
assert e() == 1 and e().name == 'A' and e() + 1 == 2
assert Color.RED.value == 1 and color(2) is Color.BLUE and color(1) == Color.RED
assert [c.name for c in Color] == ['RED', 'BLUE']
st = Stack()
st.push(4)
st.push(5)
assert st == [4, 5] and len(st) == 2 and 5 in st and st[0] == 4
assert st and isinstance(st, list)
assert st + [6] == [4, 5, 6]
assert s('ab') == 'ab' and s('ab').upper() == 'AB'""",
    ),
    "output of the candidate": (
        "def hello(n):\n  print('hello', n)",
        r"""import io, contextlib
out = io.StringIO()
with contextlib.redirect_stdout(out):
    hello(3)
assert out.getvalue() == 'hello 3\n'""",
    ),
    "coroutines": (
        "import asyncio\nasync def f(x):\n  await asyncio.sleep(0)\n  return x + 1",
        """import asyncio
assert asyncio.run(f(1)) == 2
async def main():
    return await asyncio.gather(f(1), f(2))
assert asyncio.run(main()) == [2, 3]""",
    ),
    "modules that the tests forgot": ("import math\ndef f(): return 0.1 + 0.2", "assert math.isclose(f(), 0.3)"),
    "name of a module": ("def bisect(a, x): return a.index(x)", "assert bisect([1, 2], 2) == 1"),
    "constants": ("LIMIT = 5", "assert LIMIT == 5"),
    "import of the candidate": (
        "def f(x): return x + 1\nclass K:\n  z = 3",
        "from solution import f\nimport solution\nassert f(1) == 2 and solution.K.z == 3",
    ),
    "main part does not run": ("def f(): return 1\nif __name__ == '__main__':\n  f = None; input()", "assert f() == 1"),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n  a: int\n  b: str = 'x'",
        """d = D(1)
assert d.a == 1 and d.b == 'x' and str(d) == "D(a=1, b='x')"
import copy
e = copy.deepcopy(d)
e.a = 2
assert d.a == 1""",
    ),
    "broad handlers around honest errors": (
        "def f(x):\n  if x < 0: raise ValueError\n  return x",
        "try:\n    f(-1)\n    assert False\nexcept Exception:\n    pass\nassert f(1) == 1",
    ),
    "alternatives": (
        "def f(): return 2",
        "try:\n    assert f() == 1\nexcept AssertionError:\n    assert f() == 2",
    ),
    "threads of the tests": (
        "def f(x): return x + 1",
        "import threading\nout = []\nts = [threading.Thread(target=lambda n=n: out.append(f(n))) for n in range(8)]\n"
        "[t.start() for t in ts]\n[t.join() for t in ts]\nassert sorted(out) == list(range(1, 9))",
    ),
    "delegated class members": (
        "class A:\n  n = 0\n  @staticmethod\n  def s(x): return x\n  def inc(self): A.n += 1; return self",
        """A().inc().inc()
assert A.n == 2 and A.s(3) == 3
A.n = 9
assert A().n == 9
assert callable(A.s) and not callable(A())""",
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


@pytest.mark.parametrize("name", PASSING)
def test_honest_candidates_pass(sandbox, name):
    candidate, tests = PASSING[name]
    report = run_tests(sandbox, candidate, tests, limits=LIMITS)
    assert report.outcome is TestOutcome.PASSED, (
        report.message,
        report.tests.stderr.decode(),
        report.candidate.stderr.decode(),
    )
    assert report.asserts > 0
