from __future__ import annotations

import pytest

from roll_core.sandbox.inside.counting import Tally, candidate_names, free_names, imports, read_source
from roll_core.sandbox.inside.libraries import library_names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("assert f(1) == g", {"f", "g"}),
        ("x = f(1)\nassert x", {"f"}),
        ("import math\nassert math.pi and f", {"f"}),
        ("from a import b as c\nc(d)", {"d"}),
        ("def check(candidate):\n    assert candidate(helper(1))\ncheck(f)", {"helper", "f"}),
        ("class T(Base):\n    x = y\n    def t(self):\n        z = 1\n        return z, w, self.x", {"Base", "y", "w"}),
        ("def f():\n    global n\n    n = m\nf()", {"m"}),
        ("[i for i in xs if i in ys]", {"xs", "ys"}),
        ("lambda a, b=c: a + d", {"c", "d"}),
        ("try:\n    f()\nexcept E as e:\n    e", {"f", "E"}),
        ("for i in r:\n    pass\nwith o as p:\n    p", {"r", "o"}),
        ("if (n := f()) > 1:\n    n", {"f"}),
        ("match v:\n    case C(x=1):\n        pass", {"v", "C"}),
        ("def outer():\n    a = 1\n    def inner(): return a + b\n    return inner", {"b"}),
        ("del x", set()),
        ("x: T = 1", {"T"}),
    ],
)
def test_free_names(source, names):
    assert free_names(source) == names


def test_names_of_trusted_code_and_of_python_do_not_come_from_the_candidate():
    source = "assert isinstance(f(sum([1])), int) and reference(1) == f(1) and __name__"
    assert candidate_names(source, {"reference", "__name__"}, None) == ["f"]
    assert candidate_names(source, {"reference", "__name__"}, "sum") == ["f", "sum"]


def test_a_module_is_meant_where_only_attributes_are_taken():
    assert library_names("assert math.isclose(f(), 1) and bisect([1], 1) == 0 and np.all(g())", None) == {
        "math": "math",
        "np": "numpy",
    }
    assert library_names("import math\nassert math.pi", None) == {}
    assert library_names("assert heapq.x == 1", "heapq") == {}


def test_imports():
    assert imports("def f():\n    from solution import g", "solution")
    assert imports("import solution", "solution")
    assert not imports("import solutions", "solution")


def run(source: str, names=()) -> Tally:
    tally = Tally()
    exec(read_source(source).instrumented(names), dict(tally.hooks()))
    return tally


def test_every_assert_is_counted():
    tally = run(
        "assert 1, 'm'\ndef f():\n    for i in range(3):\n        assert i < 2, i\nclass C:\n    assert True\n"
        "try:\n    f()\nexcept AssertionError as e:\n    assert e.args == (2,)"
    )
    assert (tally.began, tally.held, tally.failed, tally.open) == (6, 5, 1, 1)


def test_an_assertion_whose_condition_raises_neither_holds_nor_fails():
    tally = run("try:\n    assert 1 / 0\nexcept ZeroDivisionError:\n    pass")
    assert (tally.began, tally.held, tally.failed) == (1, 0, 0)


def test_the_truth_of_a_condition_is_asked_once():
    tally = run(
        """n = []
class T:
    def __bool__(self):
        n.append(1)
        return True
assert T()
assert len(n) == 1"""
    )
    assert tally.held == 2


@pytest.mark.parametrize(
    "source",
    [
        "len",
        "assert len",
        "f'{len}'",
        "def f(x=len): pass",
        "@staticmethod\ndef f(): pass\nassert (lambda: len)() is len",
        "class A(Exception): pass\ntry:\n    raise A\nexcept (KeyError, len and A):\n    pass",
        "match 3:\n    case int(real=x) if len:\n        pass",
    ],
)
def test_a_look_at_a_name_is_noted(source):
    assert run(source, {"len"}).used
    assert not run(source, {"open"}).used


def test_a_name_in_code_that_does_not_run_is_not_looked_at():
    assert not run("def check(candidate):\n    assert len(candidate) == 1", {"len"}).used
    assert not run("match 3:\n    case int():\n        pass\nlen = 1\ndel len", {"len", "int"}).used


@pytest.mark.parametrize(
    ("source", "holds", "handles"),
    [
        ("x = 1", False, False),
        ("assert x", True, False),
        ("class T(U):\n    def t(self): self.assertEqual(1, 1)", True, False),
        ("self.fail('x')", True, False),
        ("try:\n    assert x\nexcept AssertionError:\n    pass", True, True),
    ],
)
def test_what_a_source_holds(source, holds, handles):
    found = read_source(source)
    assert (found.has_assertions, found.handles_failures) == (holds, handles)


@pytest.mark.parametrize("source", ["assert", "x = \0", "def f(:\n  pass", "return 1", "break"])
def test_a_source_that_does_not_parse(source):
    with pytest.raises((SyntaxError, ValueError)):
        read_source(source)
