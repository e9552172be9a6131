from __future__ import annotations

import threading
from fractions import Fraction

import mpmath
import pytest

from roll_verifier_math.bounds import OutOfWorkError, TooCostlyError, metered, spend
from roll_verifier_math.evaluating.algebra import same_value
from roll_verifier_math.evaluating.functions import NoValueError
from roll_verifier_math.evaluating.numeric import NOWHERE, evaluate, far_points, has_kinks, needed_digits, points
from roll_verifier_math.evaluating.values import exact
from roll_verifier_math.reading.parse import parse
from roll_verifier_math.verify import judge


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\frac{1}{2}+\\frac13", Fraction(5, 6)),
        ("\\binom{5}{2}", 10),
        ("5!!", 15),
        ("\\sqrt{\\frac49}", Fraction(2, 3)),
        ("8^{-\\frac13}", Fraction(1, 2)),
        ("\\sqrt[3]{-8}", -2),
        ("\\lfloor-3.5\\rfloor", -4),
        ("\\gcd(12,18)", 6),
        ("\\sqrt2", None),
        ("\\frac10", None),
        ("x", None),
        ("\\sqrt{-4}", None),
    ],
)
def test_exact_values(text, value):
    assert exact(parse(text)) == value


@pytest.mark.parametrize("text", ["2^{100000}", "6000!", "\\binom{9000}{10}", "10^{30000}\\cdot10^{30000}"])
def test_large_values_are_not_computed(text):
    with pytest.raises(TooCostlyError):
        exact(parse(text))


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ("(x+1)^3", "x^3+3x^2+3x+1", True),
        ("\\sqrt{8}", "2\\sqrt2", True),
        ("\\frac{1}{1+\\sqrt2}", "\\sqrt2-1", True),
        ("\\frac{x^2-1}{x-1}", "x+1", True),
        ("\\sqrt{\\frac{2}{3}}", "\\frac{\\sqrt6}{3}", True),
        ("i^2", "-1", True),
        ("\\sqrt{-4}", "2i", True),
        ("\\sin(x+1)\\cos y", "\\cos y\\sin(1+x)", True),
        ("\\sqrt[3]{16}", "2\\sqrt[3]{2}", True),
        ("x", "x+10^{-200}", False),
        ("\\sqrt2+\\sqrt3", "\\sqrt5", False),
        ("\\pi", "\\frac{22}{7}", False),
        ("xy", "yz", False),
        ("\\sin 2x", "2\\sin x\\cos x", None),
        ("\\sqrt{x^2}", "x", None),
        ("\\pi", "e", None),
        ("\\frac{1}{x-x}", "1", None),
        ("(a+b+c+d+e+f)^{30}", "x", None),
        ("\\infty", "5", None),
    ],
)
def test_algebra_proves_and_refutes(left, right, found):
    assert same_value(parse(left), parse(right)) is found


def test_numeric_evaluation_leaves_mpmath_as_it_was():
    before = mpmath.mp.dps
    assert abs(evaluate(parse("\\sqrt2"), NOWHERE) ** 2 - 2) < 1e-90
    assert mpmath.mp.dps == before


@pytest.mark.parametrize("text", ["\\frac10", "\\ln 0", "\\tan\\infty", "y", "0^{-1}"])
def test_no_value(text):
    with pytest.raises(NoValueError):
        evaluate(parse(text), NOWHERE)


@pytest.mark.parametrize("text", ["e^{e^{20}}", "\\sin(10^{2000})", "20000.5!", "\\pi^{\\pi^{30}}", "\\tanh(10^{9})"])
def test_large_arguments_are_not_tried(text):
    with pytest.raises(TooCostlyError):
        evaluate(parse(text), NOWHERE)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1", "\\tanh(200)"),
        ("10^{-50}", "\\sin(10^{-50})"),
        ("\\sin x", "\\sin x+e^{-500}"),
        ("1000000-x", "|x-1000000|"),
        ("x+1000", "\\sqrt{(x+1000)^2}"),
        ("x", "\\max(x,-10^6)"),
        ("\\lfloor x\\rfloor+1", "\\lceil x\\rceil"),
        ("\\frac{x}{2}", "\\arctan(\\tan\\frac{x}{2})"),
        ("262537412640768744", "e^{\\pi\\sqrt{163}}"),
        ("0", "\\sin(10^{-90})"),
    ],
)
def test_what_differs_far_out_or_far_below_is_refuted(gold, answer):
    assert judge(gold, answer).score == 0.0
    assert judge(answer, gold).score == 0.0


def test_small_parts_ask_for_more_digits():
    assert needed_digits(parse("\\pi+10^{-100}"), NOWHERE) > needed_digits(parse("\\pi+1"), NOWHERE)


def test_points_depend_on_nothing_but_the_names():
    names = frozenset({"x", "y"})
    assert points(names, 6) == points(frozenset({"y", "x"}), 6)
    assert any(point["x"] < 0 for point in points(names, 12))
    assert {10**12, -(10**12)} <= {point["x"] for point in far_points(names, parse("x"))}
    assert has_kinks(parse("|x|+1"))
    assert not has_kinks(parse("x^2+1"))


def test_work_is_bounded_for_each_thread_by_itself():
    with metered() as meter:
        spend(meter.work)
        with pytest.raises(OutOfWorkError):
            spend(1)
        free = threading.Thread(target=spend, args=(10**9,))
        free.start()
        free.join()
    spend(10**9)  # outside nothing is counted
