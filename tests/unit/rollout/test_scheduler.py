"""The scheduler fills batches by ticket, drops by reason, and ends with a clear message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from roll_core.data import Ledger
from roll_core.errors import BackendError, StarvationError
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.testing.fakes import FakeBackend
from roll_core.types import (
    Completion,
    GenerateRequest,
    Prompt,
    RewardRecord,
    Rollout,
    RolloutGroup,
    SamplingParams,
    Ticket,
    Verdict,
)

SAMPLING = SamplingParams(max_new_tokens=8)


class ParityScoring:
    """Right when the last token is even; the score is the reward."""

    def __init__(self, *, fail_on: int | None = None) -> None:
        self.fail_on = fail_on
        self.finished: list[tuple[int, int]] = []

    async def score(self, rollout: Rollout) -> None:
        last = int(rollout.segments[0].token_ids[-1])
        for _ in range(last % 3):
            await asyncio.sleep(0)
        if last == self.fail_on:
            rollout.verdict = Verdict.error("broken")
        else:
            rollout.verdict = Verdict.correct() if last % 2 == 0 else Verdict.incorrect()
        self.finished.append((rollout.ticket.id, rollout.index))

    def compose(self, group: RolloutGroup) -> None:
        greedy = [group.greedy] if group.greedy else []
        for rollout in [*group.scored, *greedy]:
            rollout.rewards = [RewardRecord("score", rollout.score or 0.0)]


class Informative:
    """Drops groups whose scores are all equal; certain of it early only when one rollout is asked for."""

    def reject(self, group: RolloutGroup) -> str | None:
        return "all_equal" if len(set(group.scores.tolist())) < 2 else None


class FirstFails:
    """Rejects a group as soon as one sample is wrong."""

    def reject(self, group: RolloutGroup) -> str | None:
        return "has_wrong" if 0.0 in group.scores.tolist() else None

    def hopeless(self, scores: Sequence[float | None], missing: int) -> str | None:
        return "has_wrong" if 0.0 in scores else None


class Prompts:
    """Hands out numbered prompts, at most `limit`."""

    def __init__(self, limit: int = 1000) -> None:
        self.next, self.limit = 0, limit

    def draw(self, count: int, step: int) -> list[tuple[Ticket, Prompt]]:
        drawn = []
        while len(drawn) < count and self.next < self.limit:
            ticket = Ticket(self.next, "d", f"p{self.next}", self.next)
            drawn.append((ticket, self.prompt_of(ticket)))
            self.next += 1
        return drawn

    def prompt_of(self, ticket: Ticket) -> Prompt:
        return Prompt(ticket.prompt_id, "d", text="x", token_ids=(5, 6, 7))


def scheduler(script: Any, *, draw: Prompts | None = None, max_draws: int = 32, **options: Any) -> RolloutScheduler:
    defaults: dict[str, Any] = {
        "backend": FakeBackend(script, delays=(3, 0, 1)),
        "scoring": ParityScoring(),
        "books": Ledger(["d"]),
        "decode": lambda ids: " ".join(map(str, ids)),
        "filters": [],
        "sampling": {"d": SAMPLING},
        "group_size": 4,
        "seed_of": lambda ticket, index, attempt: ticket.id * 100 + index,
    }
    return RolloutScheduler(GroupRunner(**(defaults | options)), draw or Prompts(), max_draws)


def by_sample(request: GenerateRequest) -> list[int]:
    """Even and odd answers in turn within a group; group 1 is all wrong."""
    ticket, index = request.request_id.split(":")[1].split("/")[:2]
    return [11] if ticket == "1" else [10 + int(index)]


def test_batch_is_filled_in_ticket_order_and_refilled_after_drops() -> None:
    room = scheduler(by_sample, filters=[Informative()])
    result = asyncio.run(room.collect(0, 3))
    assert [g.ticket.id for g in result.admitted] == [0, 2, 3]
    assert [(g.ticket.id, reason) for g, reason in result.dropped] == [(1, "all_equal")]
    assert (result.drawn, result.rounds) == (4, 2)
    assert [r.index for r in result.admitted[0].rollouts] == [0, 1, 2, 3]
    assert [r.reward for r in result.admitted[0].rollouts] == [1, 0, 1, 0]


def test_sequences_carry_masks_versions_and_logprobs_behind_the_prompt() -> None:
    result = asyncio.run(scheduler([[8, 9]]).collect(0, 1))
    segment = result.admitted[0].rollouts[0].segments[0]
    assert segment.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert segment.response_mask.tolist() == [False, False, False, True, True]
    assert segment.rollout_logprobs.tolist() == [0, 0, 0, -1, -1]
    assert segment.prompt_length == 3


def test_budget_end_names_domain_pass_rate_and_remedies() -> None:
    room = scheduler([[11]], filters=[Informative()], max_draws=6)
    with pytest.raises(StarvationError) as caught:
        asyncio.run(room.collect(0, 4))
    assert "drew 6 prompts for 4 groups, 0 admitted (6 all_equal)" in str(caught.value)
    assert "domain 'd' is too hard (pass rate 0.00)" in str(caught.value)


def test_end_of_data_gives_a_smaller_last_batch_and_then_an_empty_one() -> None:
    room = scheduler(by_sample, draw=Prompts(limit=3))
    assert len(asyncio.run(room.collect(0, 8)).admitted) == 3
    last = asyncio.run(room.collect(1, 8))
    assert (last.admitted, last.drawn) == ([], 0)


def test_a_group_without_any_score_is_dropped_and_failures_leave_the_group() -> None:
    room = scheduler([[11], [12]], scoring=ParityScoring(fail_on=11))
    group = asyncio.run(room.collect(0, 1)).admitted[0]
    assert len(group.scored) == 2
    room = scheduler([[11]], scoring=ParityScoring(fail_on=11), max_draws=2)
    with pytest.raises(
        StarvationError, match=r"2 unscored.*no scored rollout, 8 rollouts without a score because of .*broken"
    ):
        asyncio.run(room.collect(0, 1))


def test_greedy_answer_is_scored_and_rewarded_apart() -> None:
    def script(request: GenerateRequest) -> list[int]:
        return [12] if request.sampling.temperature == 0 else [11]

    group = asyncio.run(scheduler(script, greedy=frozenset({"d"})).collect(0, 1)).admitted[0]
    assert group.greedy is not None
    assert (group.greedy.index, group.greedy.reward, group.greedy.score) == (-1, 1.0, 1.0)
    assert [r.reward for r in group.rollouts] == [0, 0, 0, 0]


def test_only_domains_that_ask_get_a_greedy_answer() -> None:
    group = asyncio.run(scheduler([[12]], greedy=frozenset({"other"})).collect(0, 1)).admitted[0]
    assert group.greedy is None


class Patient(FakeBackend):
    """Sample 0 answers at once; the others wait until they are aborted, or for 200 turns."""

    async def generate(self, request: GenerateRequest) -> Completion:
        if request.request_id.split("/")[1] != "0":
            for _ in range(200):
                await asyncio.sleep(0)
                if request.request_id in self._aborted:
                    break
        return await super().generate(request)


@pytest.mark.parametrize(("early_stop", "reason"), [(True, "stopped_early"), (False, "has_wrong")])
def test_hopeless_group_is_stopped_early(early_stop: bool, reason: str) -> None:
    backend = Patient([[11]], delays=(1,))
    room = scheduler([], backend=backend, filters=[FirstFails()], early_stop=early_stop, max_draws=1)
    with pytest.raises(StarvationError, match=f"1 {reason}"):
        asyncio.run(room.collect(0, 1))
    assert bool(backend._aborted) is early_stop


def test_a_broken_backend_is_named_not_wrapped() -> None:
    def script(request: GenerateRequest) -> list[int]:
        raise BackendError("the engine died")

    with pytest.raises(BackendError, match="the engine died"):
        asyncio.run(scheduler(script).collect(0, 2))


def test_books_close_after_a_step() -> None:
    ledger = Ledger(["d"])
    room = scheduler(by_sample, filters=[Informative()], books=ledger)
    result = asyncio.run(room.collect(0, 3))
    for group in result.admitted:
        ledger.train(group.ticket.id, 5)
    report = ledger.close(0, {"d": 1.0})
    assert report.tallies["d"].drawn == 4
    assert report.tallies["d"].dropped == {"all_equal": 1}
    assert report.carried == {"d": 0}
