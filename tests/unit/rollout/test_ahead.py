"""Rollouts ahead of training: nothing too old, nothing lost, no favour for short answers, and journals that go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from stepped import (  # noqa: E402 - after the path
    PROMPT,
    B,
    Prompts,
    SteppedBackend,
    ahead,
    request,
    runner,
    skewed,
    ticket_of,
    token,
    train,
)

from roll_core.data import Ledger  # noqa: E402
from roll_core.errors import BackendError, StarvationError  # noqa: E402
from roll_core.rollout.gate import Gate, joined  # noqa: E402
from roll_core.rollout.journal import Pending, UnderWay, read_pending, write_pending  # noqa: E402
from roll_core.rollout.one_step import OneStepScheduler  # noqa: E402
from roll_core.rollout.scheduler import RolloutScheduler  # noqa: E402
from roll_core.types import GenerateRequest, RolloutGroup, Ticket  # noqa: E402

# --- gate ---


def test_a_closed_gate_keeps_the_tokens_and_the_stream_goes_on_where_it_stopped():
    backend = SteppedBackend(lambda r: 9)
    gate = Gate(backend)

    async def body() -> Any:
        task = asyncio.create_task(gate.generate(request()))
        for _ in range(4):
            await asyncio.sleep(0)
        await gate.close()
        assert not backend.running and not task.done()
        kept = gate.made["d:0/0/0"]
        assert kept.finish_reason == "abort" and 0 < len(kept.token_ids) < 9
        backend.policy_version = 5
        gate.open()
        return len(kept.token_ids), await task

    cut, whole = asyncio.run(body())
    assert whole.token_ids.tolist() == [token(3, n) for n in range(9)]
    assert whole.finish_reason == "stop"
    assert [run.policy.version for run in whole.versions] == [0] * cut + [5] * (9 - cut)
    assert [(run.start, run.stop) for run in whole.versions] == [(n, n + 1) for n in range(9)]
    assert whole.logprobs.tolist() == [0.0] * cut + [-5.0] * (9 - cut)
    assert whole.columns["odd"].tolist() == [token(3, n) % 2 for n in range(9)]
    assert [len(r.prefix_ids) for r in backend.requests] == [0, cut]


def test_a_request_that_is_given_up_ends_although_the_gate_is_closed():
    backend = SteppedBackend(lambda r: 50)
    gate = Gate(backend)

    async def body() -> Any:
        task = asyncio.create_task(gate.generate(request()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.abort("d:0/0/0")
        await gate.close()
        return await asyncio.wait_for(task, 1)

    assert asyncio.run(body()).finish_reason == "abort"


def test_a_restored_request_goes_on_and_a_whole_one_is_not_asked_again():
    backend = SteppedBackend(lambda r: 6)

    async def part() -> Any:
        gate = Gate(backend)
        task = asyncio.create_task(gate.generate(request()))
        for _ in range(3):
            await asyncio.sleep(0)
        await gate.close()
        task.cancel()
        return dict(gate.made), await gate._backend.generate(request("d:1/0/0"))

    made, whole = asyncio.run(part())
    gate = Gate(backend)
    gate.restore(made | {"d:1/0/0": whole})
    asked = len(backend.requests)
    resumed = asyncio.run(gate.generate(request()))
    assert resumed.token_ids.tolist() == [token(3, n) for n in range(6)]
    assert asyncio.run(gate.generate(request("d:1/0/0"))) is whole
    assert len(backend.requests) == asked + 1


def test_columns_of_pieces_without_them_count_as_zeros():
    backend = SteppedBackend(lambda r: 2)
    one = asyncio.run(backend.generate(request()))
    bare = asyncio.run(backend.generate(request()))
    object.__setattr__(bare, "columns", {})
    assert joined(one, bare).columns["odd"].tolist() == [*one.columns["odd"].tolist(), 0, 0]
    assert joined(bare, one).columns["odd"].tolist() == [0, 0, *one.columns["odd"].tolist()]


# --- ahead ---


@pytest.mark.parametrize("staleness", [1, 2, 4])
@pytest.mark.parametrize("update_turns", [0, 20, 200])
def test_every_group_is_trained_once_within_the_bound_whatever_its_length(staleness: int, update_turns: int) -> None:
    steps = 30
    backend = SteppedBackend(skewed)
    feed = ahead(backend, steps=steps, staleness=staleness)
    batches = asyncio.run(train(feed, backend, range(steps), update_turns))
    assert [len(batch) for batch in batches] == [B] * steps
    trained = [group.ticket.id for batch in batches for group in batch]
    assert sorted(trained) == list(range(steps * B))
    for step, batch in enumerate(batches):
        oldest = min(run.policy.version for g in batch for r in g.rollouts for run in r.segments[0].versions)
        assert step - oldest <= staleness
    assert feed.open == 0 and feed._groups.books.open_tickets == []


def test_long_answers_are_trained_as_often_as_they_are_drawn_at_any_time() -> None:
    steps, staleness = 40, 2
    backend = SteppedBackend(skewed)
    batches = asyncio.run(train(ahead(backend, steps=steps, staleness=staleness), backend, range(steps), 30))
    for step in range(1, steps + 1):
        trained = {group.ticket.id for batch in batches[:step] for group in batch}
        drawn_by_then = set(range(max(trained) + 1))
        assert len(drawn_by_then - trained) <= staleness * B


def test_a_rollout_that_new_weights_interrupt_has_tokens_of_several_versions() -> None:
    backend = SteppedBackend(skewed)
    batches = asyncio.run(train(ahead(backend, steps=20, staleness=4), backend, range(20), 10))
    rollouts = [r for batch in batches for g in batch for r in g.rollouts]
    mixed = [r for r in rollouts if len({run.policy.version for run in r.segments[0].versions}) > 1]
    assert mixed
    for rollout in mixed:
        segment = rollout.segments[0]
        versions = [run.policy.version for run in segment.versions for _ in range(run.stop - run.start)]
        assert segment.rollout_logprobs[segment.response_mask].tolist() == [-float(v) for v in versions]


class DropsOdd:
    def reject(self, group: RolloutGroup) -> str | None:
        return "odd" if group.ticket.id % 2 else None


class DropsAll:
    def reject(self, group: RolloutGroup) -> str | None:
        return "never"


def test_dropped_groups_are_replaced_and_endless_dropping_is_an_error() -> None:
    backend = SteppedBackend(lambda r: 5)
    feed = ahead(backend, steps=6, staleness=2, filters=[DropsOdd()])
    batches = asyncio.run(train(feed, backend, range(6), 3))
    trained = [g.ticket.id for batch in batches for g in batch]
    assert len(trained) == 24 and all(n % 2 == 0 for n in trained)
    with pytest.raises(StarvationError, match="never"):
        asyncio.run(train(ahead(backend, steps=6, staleness=2, filters=[DropsAll()]), backend, range(6), 3))


def test_when_the_data_end_the_last_batch_is_smaller() -> None:
    backend = SteppedBackend(lambda r: 5)
    feed = ahead(backend, steps=9, staleness=2, draw=Prompts(limit=10))
    batches = asyncio.run(train(feed, backend, range(4), 3))
    assert [len(batch) for batch in batches] == [4, 4, 2, 0]


def test_a_failure_of_the_backend_reaches_the_step() -> None:
    class Failing(SteppedBackend):
        async def generate(self, request: GenerateRequest) -> Any:
            raise BackendError("the engine is gone")

    backend = Failing(lambda r: 5)
    with pytest.raises(BackendError, match="the engine is gone"):
        asyncio.run(train(ahead(backend, steps=3, staleness=1), backend, range(3), 3))


# --- checkpoints ---


def test_a_run_that_goes_on_from_a_journal_loses_nothing_and_repeats_no_token(tmp_path: Path) -> None:
    steps = 12

    async def first() -> tuple[Any, list[Any], set[int]]:
        backend = SteppedBackend(skewed)
        feed = ahead(backend, steps=steps, staleness=3)
        batches = await train(feed, backend, range(5), 10)
        backend.sync_weights(None, 5)
        feed.advance(5)
        for _ in range(5):
            await asyncio.sleep(0)
        await feed.freeze()
        feed.write(tmp_path)
        state = feed._groups.books.state_dict(), feed._draw.state_dict()
        kept = set(feed._versions)
        await feed.close()
        return state, [g.ticket.id for b in batches for g in b], kept

    (ledger, drawing), trained, kept = asyncio.run(first())
    begun = {key: len(c.token_ids) for key, c in read_pending(tmp_path, Prompts().prompt_of).made.items()}
    assert any(begun.values())

    async def second() -> list[Any]:
        backend = SteppedBackend(skewed)
        books, draw = Ledger(["d"]), Prompts()
        books.load_state_dict(ledger)
        draw.load_state_dict(drawing)
        feed = ahead(backend, steps=steps, staleness=3, books=books, draw=draw)
        feed.read(tmp_path)
        batches = await train(feed, backend, range(5, steps), 10)
        resumed = {r.request_id: len(r.prefix_ids) for r in backend.requests if r.request_id in begun}
        assert resumed == {key: n for key, n in begun.items() if key in resumed}
        return batches

    batches = asyncio.run(second())
    later = [g.ticket.id for b in batches for g in b]
    assert sorted(trained + later) == list(range(steps * B))
    assert kept <= set(later)
    for group in (g for b in batches for g in b):
        for rollout in group.rollouts:
            seed = group.ticket.id * 100 + rollout.index
            ids = rollout.segments[0].token_ids[len(PROMPT) :].tolist()
            assert ids == [token(seed, n) for n in range(len(ids))]


def test_open_tickets_without_a_journal_are_rolled_out_again_as_a_new_attempt() -> None:
    async def body() -> Any:
        backend = SteppedBackend(lambda r: 5)
        first = ahead(backend, steps=8, staleness=2)
        await train(first, backend, range(2), 1)
        first.advance(2)
        ledger, drawing = first._groups.books.state_dict(), first._draw.state_dict()
        await first.close()
        books, draw = Ledger(["d"]), Prompts()
        books.load_state_dict(ledger)
        draw.load_state_dict(drawing)
        again = ahead(backend, steps=8, staleness=2, books=books, draw=draw)
        again.read(None)
        batches = await train(again, backend, range(2, 8), 1)
        return [(g.ticket.id, g.rollouts[0].attempt) for b in batches for g in b]

    trained = asyncio.run(body())
    assert sorted(ticket for ticket, _ in trained) == list(range(8, 32))
    assert {attempt for ticket, attempt in trained if ticket < 12} == {1}


def test_what_is_pending_survives_the_disk(tmp_path: Path) -> None:
    backend = SteppedBackend(lambda r: 4 + ticket_of(r))
    scheduler = RolloutScheduler(runner(backend), Prompts(), 32)
    collected = asyncio.run(scheduler.collect(0, 3))
    collected.dropped.append((collected.admitted.pop(), "odd"))
    made = {"d:7/0/0": asyncio.run(backend.generate(request("d:7/0/0")))}
    pending = Pending(collected, {0: 2}, [UnderWay(Ticket(7, "d", "p7", 7), 1, 2)], made)
    write_pending(tmp_path, pending)
    back = read_pending(tmp_path, Prompts().prompt_of)
    assert back.versions == {0: 2} and back.under_way == pending.under_way
    assert [reason for _, reason in back.collected.dropped] == ["odd"]
    for one, other in zip(collected.groups, back.collected.groups, strict=True):
        assert one.ticket == other.ticket and one.prompt == other.prompt
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            assert (a.verdict, a.rewards, a.response, a.finish_reason) == (
                b.verdict,
                b.rewards,
                b.response,
                b.finish_reason,
            )
            assert a.segments[0].versions == b.segments[0].versions
            for name in ("token_ids", "response_mask", "loss_mask", "rollout_logprobs"):
                np.testing.assert_array_equal(getattr(a.segments[0], name), getattr(b.segments[0], name))
            np.testing.assert_array_equal(a.segments[0].columns["odd"], b.segments[0].columns["odd"])
    np.testing.assert_array_equal(back.made["d:7/0/0"].token_ids, made["d:7/0/0"].token_ids)


# --- one step ---


def test_one_step_ahead_collects_during_the_update_and_not_past_the_end() -> None:
    async def body() -> Any:
        backend = SteppedBackend(lambda r: 5)
        draw = Prompts()
        feed = OneStepScheduler(RolloutScheduler(runner(backend), draw, 32), draw, B)
        seen = []
        for step in range(3):
            backend.policy_version = step
            batch = await feed.collect(step, B)
            feed.updating(step, is_last=step == 2)
            await asyncio.sleep(0)
            seen.append(
                (
                    step,
                    draw.next,
                    {r.segments[0].versions[0].policy.version for g in batch.admitted for r in g.rollouts},
                )
            )
            await feed.settle()
        return seen

    assert asyncio.run(body()) == [(0, 8, {0}), (1, 12, {0}), (2, 12, {1})]
