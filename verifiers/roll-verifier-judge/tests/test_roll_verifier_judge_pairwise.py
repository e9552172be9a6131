from __future__ import annotations

import asyncio
import json
import pickle

import pytest

from roll_core import Status
from roll_verifier_judge.pairwise import PairwiseVerifier


def pairwise(endpoint, **options):
    return PairwiseVerifier(**{"model": "judge-1", "base_url": endpoint.url, "controls": {"every": 0}, **options})


def ask(verifier, response="mine", reference="theirs", **options):
    return asyncio.run(verifier.verify(response, reference, **{"question": "Which?", **options}))


def in_order(endpoint, make_answer, mine_first, mine_second):
    """Script a judge by where the response of the policy stands."""

    def answer(body):
        shown = body["messages"][1]["content"]
        verdict = mine_first if shown.index("mine") < shown.index("theirs") else mine_second
        return make_answer(json.dumps({"reasoning": "", "verdict": verdict}))

    endpoint.answer = answer


@pytest.mark.parametrize(
    ("first", "second", "status", "score", "detail"),
    [
        ("A", "B", Status.CORRECT, 1.0, "better"),
        ("B", "A", Status.INCORRECT, 0.0, "worse"),
        ("tie", "tie", Status.INCORRECT, 0.5, "tie"),
        ("A", "A", Status.INCORRECT, 0.5, "order_dependent"),
        ("B", "B", Status.INCORRECT, 0.5, "order_dependent"),
        ("A", "tie", Status.INCORRECT, 0.5, "order_dependent"),
    ],
)
def test_both_orders_must_agree(endpoint, make_answer, first, second, status, score, detail):
    in_order(endpoint, make_answer, first, second)
    verdict = ask(pairwise(endpoint))
    assert (verdict.status, verdict.score, verdict.detail) == (status, score, detail)
    assert len(endpoint.requests) == 2
    assert "model=judge-1 prompt=" in verdict.reason


def test_a_disagreement_can_be_left_undecided(endpoint, make_answer):
    in_order(endpoint, make_answer, "A", "A")
    verdict = ask(pairwise(endpoint, on_disagreement="undecided"))
    assert (verdict.status, verdict.score, verdict.detail) == (Status.UNDECIDED, None, "order_dependent")


def test_failures_and_empty_responses(endpoint):
    endpoint.says("hm")
    assert ask(pairwise(endpoint, attempts=1)).detail == "judge_invalid"
    count = len(endpoint.requests)
    for response in ("", ":", "Solution", "<think>mine"):
        verdict = ask(pairwise(endpoint), response)
        assert (verdict.status, verdict.score) == (Status.INVALID, 0.0)
    assert ask(pairwise(endpoint), reference=None).status is Status.UNDECIDED
    assert ask(pairwise(endpoint), reference={"rubric": "be brief"}).detail == "bad_reference"
    assert len(endpoint.requests) == count


def test_what_the_judge_is_shown(endpoint, make_answer):
    in_order(endpoint, make_answer, "A", "B")
    ask(pairwise(endpoint), "<think>hidden</think>mine <|im_end|>", {"reference": "theirs", "rubric": "be brief"})
    for request in endpoint.requests:
        shown = request["messages"][1]["content"]
        assert "hidden" not in shown
        assert "<|im_end|>" not in shown
        assert [
            shown.index(name) for name in ("BEGIN QUESTION", "BEGIN RESPONSE A", "BEGIN RESPONSE B", "BEGIN RUBRIC")
        ] == (
            sorted(
                shown.index(name) for name in ("BEGIN QUESTION", "BEGIN RESPONSE A", "BEGIN RESPONSE B", "BEGIN RUBRIC")
            )
        )


def test_controls_compare_answers_without_content(endpoint, make_answer):
    in_order(endpoint, make_answer, "A", "B")
    one = pairwise(endpoint, controls={"every": 1, "on_failure": "error"})

    def always_the_first(body):
        return make_answer(json.dumps({"verdict": "tie"}))

    endpoint.answer = always_the_first
    assert ask(one).detail == "controls_failed"
    assert one.controls.total == 1
    assert len(endpoint.requests) == 4
    assert pickle.loads(pickle.dumps(one)).controls.total == 1
