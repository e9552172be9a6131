"""Intervals, pass@k and the evaluation over a backend."""

from __future__ import annotations

import asyncio
import itertools
import json
import math

import pytest

from roll_core.evaluation import DomainResult, Evaluator, clustered, metrics_of, pass_at_k, wilson
from roll_core.testing.fakes import FakeBackend
from roll_core.types import GenerateRequest, Prompt, Rollout, RolloutGroup, SamplingParams, Verdict


def test_wilson_known_values() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20.
    p = wilson(81 / 263, 263)
    assert (p.low, p.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    p = wilson(0.0, 20)
    assert (p.low, p.high) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_clustered_interval_counts_prompts_not_samples() -> None:
    rates = [0.25, 0.75] * 50
    p = clustered(rates)
    assert p.n == 100
    assert p.value == 0.5
    assert p.high - p.value == pytest.approx(1.96 * math.sqrt((0.0625 * 100 / 99) / 100), rel=1e-3)
    assert clustered([1.0, 0.0]) == wilson(0.5, 2)
    assert math.isnan(clustered([]).value)


@pytest.mark.parametrize(("n", "correct"), [(5, 0), (5, 2), (6, 3), (4, 4)])
def test_pass_at_k_is_the_mean_over_all_subsets(n: int, correct: int) -> None:
    outcomes = [True] * correct + [False] * (n - correct)
    for k in range(1, n + 1):
        subsets = list(itertools.combinations(outcomes, k))
        assert pass_at_k(n, correct, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_pass_at_k_refuses_more_than_was_sampled() -> None:
    with pytest.raises(ValueError, match="k=3, n=2"):
        pass_at_k(2, 1, 3)


class Scoring:
    """Token 4 is right, token 6 breaks the verifier, others are wrong."""

    async def score(self, rollout: Rollout) -> None:
        last = int(rollout.segments[0].token_ids[-1])
        rollout.verdict = (
            Verdict.correct() if last == 4 else Verdict.error("broken") if last == 6 else Verdict.incorrect(score=0.9)
        )

    def compose(self, group: RolloutGroup) -> None:
        raise AssertionError("an evaluation composes no rewards")


def evaluator(script: object, *, samples: int, greedy: bool) -> Evaluator:
    prompts = {"d": [Prompt(f"p{i}", "d", text="x", token_ids=(3, 3 + i)) for i in range(4)]}
    return Evaluator(
        backend=FakeBackend(script),  # type: ignore[arg-type]
        scoring=Scoring(),
        decode=str,
        prompts=prompts,
        sampling={"d": SamplingParams(max_new_tokens=4)},
        samples=samples,
        greedy=greedy,
        seed_of=lambda ticket, index, attempt: hash((ticket.prompt_id, index)),
    )


def test_partial_credit_is_not_accuracy_and_failures_leave_the_statistics() -> None:
    def script(request: GenerateRequest) -> list[int]:
        sample = int(request.request_id.split("/")[1])
        if sample < 0:
            return [4]
        return [[4, 5], [4, 4], [5, 5], [6, 4]][request.token_ids[1] - 3][sample : sample + 1]

    result = asyncio.run(evaluator(script, samples=2, greedy=True).run())["d"]
    assert result.sampled.value == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert result.greedy is not None
    assert result.greedy.value == 1.0
    assert result.unscored == 1
    assert set(result.pass_at) == {1}
    flat = metrics_of({"d": result})
    assert flat["eval/accuracy/d"] == flat["eval/accuracy/mean"] == result.sampled.value
    assert DomainResult.from_dict(json.loads(json.dumps(result.as_dict()))) == result


def test_every_evaluation_asks_with_the_same_seeds_and_limits() -> None:
    room = evaluator([[4]], samples=2, greedy=False)
    asyncio.run(room.run())
    asyncio.run(room.run())
    requests = room.backend.requests  # type: ignore[attr-defined]
    assert len(requests) == 16
    assert [r.seed for r in requests[:8]] == [r.seed for r in requests[8:]]
    assert len({r.seed for r in requests[:8]}) == 8


def test_nothing_scored_is_null_in_json_and_comes_back() -> None:
    result = asyncio.run(evaluator([[6]], samples=1, greedy=True).run())["d"]
    assert result.unscored == 8
    text = json.dumps(result.as_dict(), allow_nan=False)
    assert json.loads(text)["sampled"]["value"] is None
    assert math.isnan(DomainResult.from_dict(json.loads(text)).sampled.value)
