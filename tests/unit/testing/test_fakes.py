import asyncio

import numpy as np
import pytest

from roll_core.contracts import RolloutBackend, Tracker
from roll_core.testing import (
    FakeBackend,
    FakeTracker,
    make_advantage_inputs,
    make_batch,
    make_group,
    make_loss_inputs,
    make_rollout,
)
from roll_core.testing.snapshot import snapshot
from roll_core.types import GenerateRequest, SamplingParams


def request(name="r", prefix=(), **sampling):
    return GenerateRequest((1, 2), SamplingParams(**sampling), 0, name, prefix_ids=prefix)


def test_a_group_holds_the_scores_it_was_made_from():
    group = make_group([1.0, None, 0.5], lengths=[2, 3, 4], ticket=7, domain="math", greedy_score=0.0)
    assert [r.score for r in group.rollouts] == [1.0, None, 0.5]
    assert [r.response_length for r in group.rollouts] == [2, 3, 4]
    assert [r.index for r in group.rollouts] == [0, 1, 2]
    assert group.ticket.domain == group.rollouts[1].ticket.domain == "math"
    assert group.greedy.index == -1


def test_rollouts_of_one_ticket_share_their_prompt_tokens_and_nothing_else():
    a, b = (r.segments[0] for r in make_group([1.0, 0.0], prompt_length=5, lengths=[6, 6]).rollouts)
    assert a.token_ids[:5].tolist() == b.token_ids[:5].tolist()
    assert a.token_ids[5:].tolist() != b.token_ids[5:].tolist()


def test_the_same_arguments_give_the_same_arrays():
    assert snapshot(make_rollout(0.5)) == snapshot(make_rollout(0.5))
    assert snapshot(make_rollout(0.5)) != snapshot(make_rollout(0.5, index=1))


def test_a_batch_keeps_lengths_rewards_and_domains():
    batch = make_batch(
        [2, 3, 4, 5], [1, 1, 2, 2], [0, 0, 1, 1], [0.5, -1.0, 2.0, 0.0], domains=("a", "b"), group_domains={1: "b"}
    )
    assert batch.lengths.tolist() == [3, 4, 6, 7]
    assert batch.rewards.tolist() == [0.5, -1.0, 2.0, 0.0]
    assert batch.rollout_group.tolist() == [0, 0, 1, 1]
    assert batch.rollout_domain.tolist() == [0, 0, 1, 1]
    assert np.array_equal(batch.response_mask, batch.loss_mask)


def test_advantage_inputs_have_a_gap():
    inputs = make_advantage_inputs([1.0], [0], lengths=[3], prompt_length=1, gap=2)
    assert inputs.response_mask.tolist() == [False, True, True, False, False, True]
    assert inputs.lengths.tolist() == [3]


def test_loss_inputs_have_the_asked_ratio():
    inputs = make_loss_inputs([2, 1], log_ratio=0.25, columns=["logprobs@teacher"])
    assert (inputs.logprobs - inputs.old_logprobs).tolist() == pytest.approx([0.25] * 5)
    assert inputs.mask.tolist() == [False, True, True, False, True]
    assert inputs.columns["logprobs@teacher"].shape == (5,)


def test_the_fake_backend_follows_its_script():
    backend = FakeBackend([[5, 6, 7], [8]])
    assert isinstance(backend, RolloutBackend)

    async def play():
        return [await backend.generate(request(f"r{i}", max_new_tokens=2)) for i in range(3)]

    first, second, third = asyncio.run(play())
    assert (first.token_ids.tolist(), first.finish_reason) == ([5, 6], "length")
    assert (second.token_ids.tolist(), second.finish_reason) == ([8], "stop")
    assert third.token_ids.tolist() == [5, 6]
    assert [r.request_id for r in backend.requests] == ["r0", "r1", "r2"]


def test_the_fake_backend_stops_resumes_and_aborts():
    backend = FakeBackend(lambda request: [9, 3, 9], delays=[5])

    async def play():
        stopped = await backend.generate(request(stop_token_ids=(3,)))
        resumed = await backend.generate(request(max_new_tokens=4, prefix=(7, 7)))
        waiting = asyncio.ensure_future(backend.generate(request("slow")))
        await asyncio.sleep(0)
        backend.abort("slow")
        return stopped, resumed, await waiting

    stopped, resumed, aborted = asyncio.run(play())
    assert (stopped.token_ids.tolist(), stopped.finish_reason) == ([9, 3], "stop")
    assert (resumed.token_ids.tolist(), resumed.finish_reason) == ([9, 3], "length")
    assert (aborted.token_ids.tolist(), aborted.finish_reason) == ([], "abort")


def test_the_fake_tracker_remembers():
    tracker = FakeTracker()
    assert isinstance(tracker, Tracker)
    tracker.log(3, {"a": 1.0})
    tracker.finish("failed")
    assert tracker.metrics == [(3, {"a": 1.0})]
    assert tracker.statuses == ["failed"]


def test_a_snapshot_sees_every_change():
    group = make_group([1.0, 0.0])
    before = snapshot(group)
    group.rollouts[1].segments[0].rollout_logprobs[2] += 1e-6
    assert snapshot(group) != before
