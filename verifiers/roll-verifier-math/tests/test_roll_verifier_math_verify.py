from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from roll_core.types import Status
from roll_verifier_math.verify import MathVerifier

GOLDEN = [json.loads(line) for line in (Path(__file__).parent / "golden.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["why"])
def test_golden(row):
    verdict = MathVerifier(form=row["form"]).verify(row["answer"], row["gold"])
    assert (verdict.score == 1.0) == row["expected"], verdict


@pytest.mark.parametrize(
    ("response", "reference", "status", "detail"),
    [
        (r"\boxed{42}", "42", Status.CORRECT, "exact"),
        (r"\boxed{41}", "42", Status.INCORRECT, "exact"),
        (r"\boxed{\frac{2}{\sqrt{2}}}", r"\sqrt{2}", Status.CORRECT, "symbolic"),
        (r"\boxed{\sqrt{3+2\sqrt2}}", r"1+\sqrt2", Status.CORRECT, "numeric"),
        ("I do not know.", "42", Status.INCORRECT, "words"),
        ("I really have no idea how anybody could ever find the answer to a question like that.", "42", "", ""),
        ("", "42", Status.INVALID, "no_answer"),
        (r"\boxed{}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\text{}}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\frac{}", "42", Status.INVALID, "no_answer"),
        (r"\boxed{\foo{}}", "42", Status.INCORRECT, "unreadable"),
        (r"\boxed{2000000!}", "1", Status.INCORRECT, "too_costly"),
        (r"\boxed{1}", "2000000!", Status.UNDECIDED, "too_costly"),
        (r"\boxed{5}", r"\foo{5}", Status.UNDECIDED, "bad_reference"),
        (r"\boxed{\foo{5}}", r"\foo{5}", Status.CORRECT, "identical"),
        (r"\boxed{5}", "", Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", None, Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", float("nan"), Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", True, Status.UNDECIDED, "bad_reference"),
        (r"\boxed{5}", ["5"], Status.UNDECIDED, "bad_reference"),
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
