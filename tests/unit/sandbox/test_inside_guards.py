"""Nothing of the candidate's becomes code beside the tests, and library names are the library's."""

from __future__ import annotations

import functools
import io
import math
import operator
import os
import pickle
import subprocess

import pytest

from roll_core.sandbox.inside.guards import TextGuard, may_be_lent
from roll_core.sandbox.inside.libraries import checker_names


@pytest.mark.parametrize(
    "value",
    [
        len,
        sorted,
        str,
        int,
        math.sqrt,
        operator.add,
        operator.itemgetter(1),
        operator.attrgetter("x"),
        functools.reduce,
        [].append,
        "a".upper,
        str.upper,
        io.StringIO().write,
        functools.partial(len, "a"),
        lambda: 1,
        dict.get,
    ],
    ids=repr,
)
def test_harmless_functions_may_be_lent(value):
    assert may_be_lent(value)


@pytest.mark.parametrize(
    "value",
    [
        eval,
        exec,
        compile,
        open,
        getattr,
        setattr,
        delattr,
        vars,
        type,
        __import__,
        globals,
        input,
        os.system,
        os._exit,
        operator.attrgetter,
        operator.methodcaller,
        str.format,
        "{}".format,
        "{}".format_map,
        subprocess.run,
        object.__getattribute__,
        pickle.loads,
    ],
    ids=repr,
)
def test_functions_that_run_code_or_look_into_objects_may_not(value):
    assert not may_be_lent(value)


def guard(tainted: bool):
    reasons: list[str] = []

    def fail(reason: str) -> BaseException:
        reasons.append(reason)
        return RuntimeError(reason)

    made = TextGuard(fail, lambda: tainted)
    made.trust("exec('y = x')\neval('x + 1')")
    return made.names(), reasons


def test_text_of_the_tests_and_arithmetic_run():
    names, reasons = guard(tainted=True)
    assert names["eval"]("x + 1", {"x": 2}) == 3
    assert names["eval"]("3 * (2 + 1) == [9][0] and -1 < 2") is True
    space = {"x": 5}
    names["exec"]("y = x", space)
    assert space["y"] == 5
    assert names["eval"](names["compile"]("x + 1", "f", "eval"), {"x": 1}) == 2
    x = 4
    assert names["eval"]("x + 1") == 5
    assert x == 4
    assert reasons == []


@pytest.mark.parametrize(
    "text", ["f(1)", "x", "().__class__", "[i for i in (1,)]", "lambda: 1", "y = 1", "(", "f'{x}'", b"1", "(a := 1)"]
)
@pytest.mark.parametrize("name", ["eval", "exec", "compile"])
def test_other_text_is_a_fault_once_the_candidate_has_given_a_value(name, text):
    names, reasons = guard(tainted=True)
    with pytest.raises(RuntimeError):
        names[name](text, *(("f", "exec") if name == "compile" else ()))
    assert len(reasons) == 1


def test_before_that_tests_may_make_their_own_text():
    names, _ = guard(tainted=False)
    assert names["eval"]("sum([i for i in (1, 2)])") == 3


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("assert isclose(f(3), 9)", {"isclose": "math"}),
        ("r = f(3)\nassert isclose(r, 9)", {"isclose": "math"}),
        ("def check(candidate):\n    assert isclose(candidate(3), 9)\ncheck(f)", {"isclose": "math"}),
        ("assert all(map(isclose, f(3), [9]))", {"isclose": "math"}),
        ("assert Counter(f(3)) == Counter('abc')", {"Counter": "collections"}),
        ("for x in f(3):\n    assert floor(x) == 1", {"floor": "math"}),
        ("assert gcd(10, 15) == 5", {}),
        ("assert gcd(10, 15) == 5\nassert lcm(2, 3) == 6", {}),
        ("assert gcd(10, 15) == 5\nassert gcd(f(3), 9) == 3", {}),
        ("assert isclose(gcd(4, 6), 2)", {"isclose": "math"}),
        ("c = Counter()\nc.add(1)\nassert show(c) == '1'", {}),
        ("from math import isclose\nassert isclose(f(3), 9)", {}),
    ],
)
def test_functions_that_decide_about_the_candidate_are_the_librarys(source, found):
    assert checker_names(source, None) == found


def test_the_entry_point_is_the_candidates():
    assert checker_names("assert isclose(f(3), 9)", "isclose") == {}
