"""What becomes of groups at the staleness bound: waited for, dropped or corrected; the books close in each case."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from stepped import (  # noqa: E402 - after the path
    B,
    Prompts,
    SteppedBackend,
    ahead,
    is_long,
    request,
    run_steps,
    skewed,
    ticket_of,
)

from roll_core.data import Ledger  # noqa: E402
from roll_core.rollout.gate import Gate  # noqa: E402
from roll_core.rollout.journal import read_pending  # noqa: E402
from roll_core.types import GenerateRequest, RolloutGroup  # noqa: E402

POLICIES = ("wait", "drop", "correct")
TURNS = 30
"""Turns of the event loop an update takes: a long answer (300 turns) outlives many."""


def start_of(group: RolloutGroup) -> int:
    """Version of the group's first token."""
    return min(run.policy.version for r in group.rollouts for run in r.segments[0].versions)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("staleness", [1, 3])
def test_every_group_is_trained_or_dropped_once_and_counted(policy: str, staleness: int) -> None:
    steps = 60
    backend = SteppedBackend(skewed)
    feed = ahead(backend, steps=steps, staleness=staleness, on_stale=policy)
    results = asyncio.run(run_steps(feed, backend, range(steps), TURNS))
    trained = [group.ticket.id for result in results for group in result.admitted]
    dropped = [group.ticket.id for result in results for group, _ in result.dropped]
    assert len(trained) == steps * B
    assert sorted(trained + dropped) == list(range(sum(result.drawn for result in results)))
    assert feed.open == 0
    assert not backend.running
    assert {reason for result in results for _, reason in result.dropped} <= {"stale"}
    for step, result in enumerate(results):
        assert result.stale == sum(step - start_of(group) > staleness for group in result.admitted)
    stale = sum(result.stale for result in results)
    assert (stale > 0, bool(dropped)) == (policy == "correct", policy == "drop")


def test_only_waiting_keeps_a_step_waiting_for_old_groups() -> None:
    turns: dict[str, int] = {}
    for policy in POLICIES:
        backend = SteppedBackend(skewed)
        feed = ahead(backend, steps=40, staleness=1, on_stale=policy)

        async def body(feed: Any = feed, backend: SteppedBackend = backend) -> int:
            passed = 0

            async def count() -> None:
                nonlocal passed
                while True:
                    passed += 1
                    await asyncio.sleep(0)

            counting = asyncio.ensure_future(count())
            await run_steps(feed, backend, range(40), TURNS)
            counting.cancel()
            return passed

        turns[policy] = asyncio.run(body())
    assert max(turns["drop"], turns["correct"]) < 0.7 * turns["wait"], turns


def test_long_answers_are_admitted_like_short_ones_unless_stale_groups_are_dropped() -> None:
    """The share of long groups among those trained so far, at every step, against a bound that follows from the rules.

    Prompts are long with probability p, independently, so among d drawn groups there are d p +- z sqrt(d p (1 - p))
    long ones; at most (1 + staleness) B of the drawn ones are not trained yet, and these may all be long, or none.
    z = 5.6 leaves 1e-6 for all 200 steps together.
    """
    steps, staleness, p, z = 200, 2, 0.1, 5.6
    outside: dict[str, int] = {}
    means: dict[str, float] = {}
    for policy in POLICIES:
        backend = SteppedBackend(skewed)
        feed = ahead(backend, steps=steps, staleness=staleness, on_stale=policy)
        results = asyncio.run(run_steps(feed, backend, range(steps), TURNS))
        trained = long = outside[policy] = 0
        for result in results:
            trained += len(result.admitted)
            long += sum(is_long(group.ticket.id) for group in result.admitted)
            room = z * math.sqrt(trained * p * (1 - p)) + (1 + staleness) * B
            outside[policy] += abs(long - trained * p) > room
        lengths = [r.response_length for result in results for g in result.admitted for r in g.rollouts]
        means[policy] = sum(lengths) / len(lengths)
    assert outside["wait"] == outside["correct"] == 0, outside
    assert outside["drop"] > 0, outside
    assert means["wait"] == means["correct"]
    assert means["drop"] < means["wait"] / 2, means


def test_a_finished_group_that_no_step_took_in_time_is_dropped_too() -> None:
    async def body() -> tuple[list[int], list[tuple[int, str]]]:
        backend = SteppedBackend(lambda r: 75 if r.request_id.startswith("d:0/") else 5)
        feed = ahead(backend, steps=9, staleness=1, on_stale="drop")
        await run_steps(feed, backend, range(2), 40)
        ready = [group.ticket.id for group in feed._ready.admitted]
        feed.advance(2)
        dropped = [(group.ticket.id, reason) for group, reason in feed._ready.dropped]
        await feed.close()
        return ready, dropped

    ready, dropped = asyncio.run(body())
    assert 0 in ready
    assert dropped == [(0, "stale")]


def test_stale_groups_do_not_count_as_starvation() -> None:
    backend = SteppedBackend(lambda r: 300 if ticket_of(r) % 7 == 0 else 10)
    feed = ahead(backend, steps=40, staleness=9, on_stale="drop", max_draws=1)
    results = asyncio.run(run_steps(feed, backend, range(40), 5))
    assert all(len(result.admitted) == B for result in results)


# --- checkpoints ---


@pytest.mark.parametrize("policy", ["drop", "correct"])
@pytest.mark.parametrize("stopped_at", [3, 7])
def test_the_books_close_after_a_resume(tmp_path: Path, policy: str, stopped_at: int) -> None:
    steps = 16

    async def first() -> tuple[Any, list[Any]]:
        backend = SteppedBackend(skewed)
        feed = ahead(backend, steps=steps, staleness=1, on_stale=policy)
        results = await run_steps(feed, backend, range(stopped_at), TURNS)
        backend.sync_weights(None, stopped_at)
        feed.advance(stopped_at)
        await feed.freeze()
        feed.write(tmp_path)
        state = feed._groups.books.state_dict(), feed._draw.state_dict()
        await feed.close()
        return state, results

    (ledger, drawing), before = asyncio.run(first())
    pending = read_pending(tmp_path, Prompts().prompt_of)
    waiting = [g.ticket.id for g in pending.collected.admitted] + [one.ticket.id for one in pending.under_way]
    backend, books, draw = SteppedBackend(skewed), Ledger(["d"]), Prompts()
    books.load_state_dict(ledger)
    draw.load_state_dict(drawing)
    feed = ahead(backend, steps=steps, staleness=1, on_stale=policy, books=books, draw=draw)
    feed.read(tmp_path)
    after = asyncio.run(run_steps(feed, backend, range(stopped_at, steps), TURNS))
    trained = [group.ticket.id for result in before + after for group in result.admitted]
    dropped = [group.ticket.id for result in before + after for group, _ in result.dropped]
    assert set(waiting) <= {*trained, *dropped}
    assert len(trained) == steps * B
    assert sorted(trained + dropped) == list(range(draw.next))
    assert bool(dropped) == (policy == "drop")
    given_up = {one.ticket.id for one in pending.under_way if one.version < stopped_at - 1}
    asked = {ticket_of(r) for r in backend.requests}
    assert policy != "drop" or not given_up & asked
    assert books.open_tickets == []


# --- requests that are given up ---


def test_a_request_that_is_given_up_before_it_starts_never_reaches_the_backend() -> None:
    async def body() -> Any:
        backend = SteppedBackend(lambda r: 50)
        gate = Gate(backend)
        task = asyncio.create_task(gate.generate(request()))
        gate.abort("d:0/0/0")
        return await task, backend.requests, gate

    done, requests, gate = asyncio.run(body())
    assert done.finish_reason == "abort" and len(done.token_ids) == 0 and requests == []
    gate.abort("d:1/0/0")
    gate.forget(["d:0/0/0", "d:1/0/0"])
    assert not gate.made and not gate._given_up


# --- memory ---


class DropsSome:
    def reject(self, group: RolloutGroup) -> str | None:
        return "odd" if group.ticket.id % 5 == 0 else None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_long_run_keeps_nothing_of_what_is_done(policy: str) -> None:
    """What the scheduler and the ledger hold after 200 steps is what they held after 40 (16 KiB leave room)."""

    class Forgetful(SteppedBackend):
        async def generate(self, request: GenerateRequest) -> Any:
            self.requests.clear()
            return await super().generate(request)

    async def body() -> tuple[list[int], list[int]]:
        backend = Forgetful(lambda r: 40 if is_long(ticket_of(r)) else 3)
        feed = ahead(backend, steps=201, staleness=2, on_stale=policy, filters=[DropsSome()])
        held, sizes = [], []
        for first, last in ((0, 40), (40, 200)):
            await run_steps(feed, backend, range(first, last), 5)
            sizes.append(len(feed._versions) + len(feed._tasks) + len(feed._given_up) + len(feed._groups.gate.made))
            sizes.append(len(feed._groups.gate._given_up) + len(feed._groups.books.open_tickets))
            held.append(_held())
        await feed.close()
        return held, sizes

    tracemalloc.start()
    try:
        held, sizes = asyncio.run(body())
    finally:
        tracemalloc.stop()
    assert max(sizes) <= 3 * 3 * B + 3 * B * 2, sizes
    assert held[1] - held[0] < 16_384, held


def _held() -> int:
    """Bytes that lines of the scheduler and the ledger have allocated and that are still alive."""
    gc.collect()
    sources = [tracemalloc.Filter(True, f"*/roll_core/{place}") for place in ("rollout/*.py", "data/ledger.py")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(sources).traces)
