from __future__ import annotations

import importlib.resources
import json
import time

import pytest

from roll_core import Status
from roll_verifier_judge.content import precheck
from roll_verifier_judge.judge import JudgeVerifier

TABLE = (importlib.resources.files("roll_verifier_judge") / "golden.jsonl").read_text(encoding="utf-8")
ROWS = [row for row in map(json.loads, TABLE.splitlines()) if "scale" not in row.get("options", {})]
JUDGE = JudgeVerifier(model="unused", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_golden_responses_are_decided_without_a_judge(kind):
    for row in [row for row in ROWS if row["kind"] == kind]:
        verdict = JUDGE.decide(row["response"], row["reference"])
        assert verdict is not None, row
        assert (verdict.status is Status.CORRECT) is row["expected"], (row, verdict)
        assert verdict.score == float(row["expected"])
        assert "model=unused prompt=" in verdict.reason
        assert "attempts=0" in verdict.reason


@pytest.mark.parametrize(
    ("response", "detail"),
    [
        (":", "empty_after_normalisation"),
        ("", "empty_after_normalisation"),
        ("\u200b\ufeff", "empty_after_normalisation"),
        ("<think>391</think>", "nothing_outside_thinking"),
        ("<think>391", "nothing_outside_thinking"),
        ("Thought process:", "content_free"),
        ("391 or 400", "hedging"),
        ("391", "exact"),
    ],
)
def test_details_name_the_finding(response, detail):
    assert precheck(response, "391", exact=True, hedging=True) == detail


@pytest.mark.parametrize(
    ("response", "reference"),
    [
        ("three hundred ninety-one", "391"),
        ("三百九十一", "391"),
        ("The product is three hundred and ninety-one.", "391"),
        ("I refuse to answer.", "391"),
        ("400", "391"),
        ("391 (though it should be 400)", "391"),
        ("I do not know whether the answer is 391.", "391"),
        ("The answer is not \\boxed{391}", "391"),
        ("391%", "391"),
        ("391, 391", "400"),
        ("400-9", "391"),
        ("17 * 23", "391"),
        ("391,392", "391"),
        ("10 and 3/4", "10.75"),
        ("3 of 5", "0.6"),
        ("The answer is 391, not 400.", "391"),
        ("17 and 23 give 391", "391"),
        ("-391", "391"),
        ("340 + 51 is what I get: 391 in all.", "391"),
        ("I first got 400. Wait, the answer is 391.", "391"),
        ("The answer is 400. Wait, no. The answer is 391.", "391"),
        ("It is 391, since 17 times 20 is 340 and 51 more make 391.", "391"),
        ("The answer is A", "B"),
        ("A", "B"),
        ("A is the answer", "B"),
        ("Yes", "No"),
        ("The answer is yes", "no"),
        ("The answer is good", "bad"),
        ("Paris, France", "Paris"),
        ("x = 3 or x = -3", "3 or -3"),
        ("1, 2", "1, 2, 3"),
        ("The set is open or closed", "clopen"),
        ("Step 3 is wrong", "step 2"),
        ("Solution: multiply by two", "double it"),
    ],
)
def test_content_is_left_to_the_judge(response, reference):
    assert precheck(response, reference, exact=True, hedging=True) is None


def test_checks_can_be_switched_off():
    assert precheck("391", "391", exact=False, hedging=True) is None
    assert precheck("391 or 400", "391", exact=True, hedging=False) is None
    assert precheck("Solution", None, exact=True, hedging=True) == "content_free"


def test_time_is_bounded():
    started = time.perf_counter()
    for unit in (
        "a",
        "9",
        "(",
        "\\boxed{",
        "1+",
        "391\n",
        "answer is 3 ",
        "9, ",
        "9 or ",
        "the answer ",
        "answer: 1\n",
        "or ",
    ):
        precheck((unit * 500_000)[:500_000], "391", exact=True, hedging=True)
    assert time.perf_counter() - started < 15
