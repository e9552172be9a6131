from __future__ import annotations

import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from roll_core import load_verifier
from roll_core.types import Status
from roll_verifier_math.verify import MathVerifier


@pytest.mark.parametrize(
    ("response", "reference", "status", "detail"),
    [
        (r"\boxed{42}", "42", Status.CORRECT, "exact"),
        (r"\boxed{41}", "42", Status.INCORRECT, "exact"),
        (r"\boxed{\frac{2}{\sqrt{2}}}", r"\sqrt{2}", Status.CORRECT, "symbolic"),
        (r"\boxed{4 July 1776}", r"\text{July 4, 1776}", Status.CORRECT, "date"),
        (r"\boxed{3:30 PM}", r"3:30", Status.INCORRECT, "date"),
        (r"\boxed{1011_3}", r"1011_2", Status.INCORRECT, "base"),
        (r"\boxed{x\equiv 10\pmod 7}", r"x\equiv 3\pmod 7", Status.CORRECT, "modular"),
        (r"\boxed{x^2+c}", "x^2+C", Status.CORRECT, "constant"),
        (r"\boxed{x<3}", r"(-\infty,3)", Status.CORRECT, "region"),
        (r"\boxed{5\text{ s}}", r"5\text{ kg}", Status.INCORRECT, "unit"),
        ("I do not know.", "42", Status.INVALID, "no_answer"),
        ("Blue whales.", "42", Status.INCORRECT, "words"),
        ("I really have no idea how anybody could ever find the answer to a question like that.", "42", "", ""),
        ("", "42", Status.INVALID, "no_answer"),
        (r"\boxed{}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\text{}}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\frac{}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\foo{}}", "42", Status.INCORRECT, "unreadable"),
        (r"\boxed{2000000!}", "1", Status.INCORRECT, "too_costly"),
        (r"\boxed{9^{9^{9^{9}}}}", "\\sqrt{2}", Status.INCORRECT, "too_costly"),
        (r"\boxed{" + "9" * 2000 + "}", "5", Status.INVALID, "out_of_bounds"),
        (r"\boxed{" + "1+" * 900 + "1}", "5", Status.INVALID, "out_of_bounds"),
        (r"\boxed{" + "(" * 90 + "5" + ")" * 90 + "}", "5", Status.INVALID, "out_of_bounds"),
        (r"\boxed{" + "1," * 70 + "1}", "5", Status.INVALID, "out_of_bounds"),
        (r"\boxed{" + "9" * 2000 + "}", "9" * 2000, Status.CORRECT, "identical"),
        (r"\boxed{5}", "9" * 2000, Status.UNDECIDED, "bad_reference"),
        (r"\boxed{" + "9" * 2000 + "}", "7" * 2000, Status.INVALID, "out_of_bounds"),
        (r"\boxed{1}", "2000000!", Status.UNDECIDED, "too_costly"),
        (r"\boxed{5}", r"\foo{5}", Status.UNDECIDED, "bad_reference"),
        (r"\boxed{\foo{5}}", r"\foo{5}", Status.CORRECT, "identical"),
        (r"\boxed{5}", "", Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", None, Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", float("nan"), Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", True, Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", ["5"], Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", r"\sum_{k=1}^n k", Status.UNDECIDED, "bad_reference"),
        (r"\boxed{\sum_{k=1}^{n} k}", r"\sum_{k=1}^n k", Status.CORRECT, "structure"),
    ],
)
def test_status_and_stage(response, reference, status, detail):
    verdict = MathVerifier().verify(response, reference)
    if status:
        assert (verdict.status, verdict.detail) == (status, detail), verdict
    else:
        assert verdict.score == 0.0, verdict


@pytest.mark.parametrize("reference", [5, 5.0, Fraction(5), np.int64(5), np.float32(5), "5"])
def test_numbers_are_references_too(reference):
    assert MathVerifier().verify(r"\boxed{5}", reference).score == 1.0
    assert MathVerifier().verify(r"\boxed{0.5}", 0.5).score == 1.0


@pytest.mark.parametrize("reference", [10**5000, Fraction(1, 3**9000)], ids=["integer", "fraction"])
def test_a_huge_number_is_no_usable_reference(reference):
    assert MathVerifier().verify(r"\boxed{5}", reference).status is Status.UNDECIDED


def test_the_answer_is_shown():
    assert MathVerifier().verify(r"So \boxed{ x + 1 } is it.", "x").answer == "x + 1"


@pytest.mark.parametrize(
    ("mode", "response", "is_right"),
    [
        ("boxed", "The answer is 5.", False),
        ("boxed", r"\boxed{5}, I say 6", True),
        ("last", r"\boxed{6}, I say 5", True),
        ("last", r"I say 6, hence $x = 5$.", True),
        ("auto", r"\boxed{6}, I say 5", False),
        ("auto", "<answer>5</answer> or 6", True),
        ("auto", "Answer:\n**5**", True),
        ("auto", "It costs 2, 3 and at the end 5", True),
        ("auto", "10-5", True),
        ("auto", "x = -5", False),
    ],
)
def test_extraction_modes(mode, response, is_right):
    verdict = MathVerifier(extract=mode).verify(response, "5")
    assert (verdict.score == 1.0) == is_right, verdict


def test_form_answer_does_not_search():
    bare = MathVerifier(form="answer")
    assert bare.verify("5", "5").score == 1.0
    assert bare.verify("The answer is 5", "5").score == 0.0


def test_plain_numbers_load_no_library():
    code = (
        "import sys; from roll_verifier_math.verify import MathVerifier; v = MathVerifier()\n"
        "assert v.verify('so \\\\boxed{42}', '42').score == 1.0 and v.verify('it is 3/4', '0.5').score == 0.0\n"
        "loaded = {'sympy', 'mpmath', 'torch', 'roll_verifier_math.parse'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    command = [sys.executable, "-c", "import sys; sys.path[:] = " + repr(sys.path) + "\n" + code]
    subprocess.run(command, check=True, timeout=60)


def test_ordinary_formulas_load_no_sympy():
    code = (
        "import sys; from roll_verifier_math.verify import judge\n"
        "assert judge('2\\\\sqrt2', '\\\\sqrt{8}').detail == 'symbolic'\n"
        "assert judge('\\\\sin 2x', '2\\\\sin x').score == 0.0 and judge('x^2-1', '(x-1)(x+1)').score == 1.0\n"
        "assert judge('52_8', '52_{10}').score == 0.0 and judge('\\\\infty', '7').score == 0.0\n"
        "assert 'sympy' not in sys.modules"
    )
    command = [sys.executable, "-c", "import sys; sys.path[:] = " + repr(sys.path) + "\n" + code]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize(
    ("reference", "answer", "is_right"),
    [
        ("3.33", r"\frac{10}{3}", True),
        ("3.14", r"\pi", True),
        ("3.14", "3.1416", True),
        ("3.14", "3.15", False),
        ("3.14", "3.1", False),
        ("3", "3.0001", False),
        ("0.5", "0.55", True),
        ("0.50", "0.51", False),
        (r"2.5\text{ cm}", r"2.49\text{ cm}", True),
        (r"2.5\text{ cm}", r"2.49\text{ mm}", False),
        (r"\frac{10}{3}", "3.33", False),
    ],
)
def test_decimal_references_may_be_rounded_when_the_data_says_so(reference, answer, is_right):
    rounded = MathVerifier(form="answer", rounded=True).verify(answer, reference)
    assert (rounded.score == 1.0) == is_right
    assert MathVerifier(form="answer").verify(answer, reference).score == 0.0


def test_boxes_side_by_side_with_one_value_are_one_answer():
    assert MathVerifier().verify(r"\boxed{0.5}, \boxed{\frac12}", "1/2").score == 1.0
    assert MathVerifier().verify(r"\boxed{0.5}, \boxed{\frac13}", "1/2").score == 0.0


def test_a_verifier_can_be_pickled_and_compared():
    made = MathVerifier(form="answer", rounded=True, prove=False, extract="boxed")
    assert pickle.loads(pickle.dumps(made)) == made


def test_load_verifier_takes_the_options():
    assert load_verifier("math")(r"... \boxed{0.5}", "1/2").score == 1.0
    assert load_verifier("math", form="answer")("0.5", "1/2").score == 1.0
