from __future__ import annotations

import json
import time
from collections import Counter
from importlib.resources import files

import pytest

from roll_verifier_math.verify import MathVerifier

ROWS = [json.loads(line) for line in (files("roll_verifier_math") / "golden.jsonl").read_text("utf-8").splitlines()]
VERIFIERS = {form: MathVerifier(form=form) for form in ("answer", "response")}
QUICK = MathVerifier(form="answer", prove=False)
LIMIT_S = 2.0


@pytest.fixture(scope="module")
def judged():
    found = []
    for row in ROWS:
        verdict, seconds = timed(row)
        found.append((row, verdict, seconds))
    return found


def timed(row):
    started = time.process_time()
    verdict = VERIFIERS[row["config"]["form"]].verify(row["response"], row["reference"])
    return verdict, time.process_time() - started


def test_no_wrong_answer_is_accepted(judged):
    wrong = [
        (row["id"], v) for row, v, _ in judged if not row.get("disputed") and not row["expected"] and v.score == 1.0
    ]
    assert wrong == []


def test_nearly_every_right_answer_is_accepted(judged):
    counted = [(row, v) for row, v, _ in judged if not row.get("disputed") and row["expected"] is not None]
    missed = [(row["id"], v) for row, v in counted if (v.score == 1.0) != row["expected"]]
    assert len(missed) <= len(counted) // 100, missed


def test_every_kind_is_there_with_both_labels(judged):
    labels = Counter((row["kind"], row["expected"]) for row, _, _ in judged)
    kinds = {kind for kind, _ in labels}
    one_sided = {"empty_garbage", "general", "broken_reference"}
    assert len(kinds) > 40
    assert {kind for kind in kinds if not (labels[kind, True] and labels[kind, False])} <= one_sided


def test_only_a_broken_reference_goes_unscored(judged):
    for row, verdict, _ in judged:
        if row["expected"] is None:
            assert not verdict.status.is_scored, row["id"]
        if row["expected"] and not row.get("disputed"):
            assert verdict.status.is_scored, row["id"]


def test_nothing_takes_long(judged):
    slow = [row for row, _, seconds in judged if seconds >= LIMIT_S]
    again = {row["id"]: min(timed(row)[1] for _ in range(3)) for row in slow}  # a neighbour's load must not count
    assert all(seconds < LIMIT_S for seconds in again.values()), again


def test_the_order_of_the_two_does_not_matter(judged):
    asymmetric = [
        row["id"]
        for row, verdict, _ in judged
        if row["config"]["form"] == "answer"
        and (QUICK.verify(row["reference"], row["response"]).score == 1.0) != (verdict.score == 1.0)
    ]
    assert asymmetric == []


def test_every_reference_and_answer_matches_itself(judged):
    for row, _, _ in judged:
        if row["config"]["form"] == "answer":
            for text in (row["reference"], row["response"]):
                verdict = QUICK.verify(text, text)
                assert verdict.score == 1.0 or verdict.status == "invalid", text


WRAPPERS = ("${}$", "$${}$$", "\\({}\\)", "\\[{}\\]", "\\boxed{{{}}}", "\\displaystyle {}", "**{}**", "  {}  ", "{}.")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_changes_nothing(judged, wrapper):
    changed = []
    for row, verdict, _ in judged[::4]:
        text = row["response"].strip()
        is_closed = text.count("{") == text.count("}") and "$" not in text and not text.endswith(("\\", ".", ";", ","))
        if row["config"]["form"] != "answer" or not is_closed or "`" in text or "*" in text:
            continue
        wrapped = QUICK.verify(wrapper.format(text), row["reference"])
        if (wrapped.score == 1.0) != (verdict.score == 1.0):
            changed.append((row["id"], row["reference"], text, verdict.detail, wrapped.detail))
    assert changed == []
