"""One run of the engine's scheduler against replayed devices."""

from __future__ import annotations

import asyncio
import statistics
import sys
from dataclasses import dataclass, replace
from typing import Literal

from async_replay.clock import VirtualLoop
from async_replay.costs import Costs
from async_replay.devices import ReplayBackend, Replica
from async_replay.workload import Lengths, Prompts, Scoring, seed_of
from roll_core.data import Ledger
from roll_core.rollout.ahead import AheadScheduler
from roll_core.rollout.feed import Feed
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.one_step import OneStepScheduler
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.types import RolloutGroup, SamplingParams

Mode = Literal["sync", "one_step", "async"]
OnStale = Literal["wait", "drop", "correct"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload on some devices."""

    devices: int
    prompts: int
    group_size: int
    steps: int
    staleness: int
    lengths: Lengths
    costs: Costs

    def shortened(self, steps: int) -> Setting:
        """The same for fewer steps."""
        return replace(self, steps=steps)


@dataclass(frozen=True, slots=True)
class Layout:
    """Who does what. Devices that do both take turns, at no cost."""

    generators: int
    trainers: int
    is_shared: bool = False

    def __str__(self) -> str:
        """As the report names it."""
        if self.is_shared:
            return f"all {self.trainers} do both"
        return f"{self.generators} generate, {self.trainers} train"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; shares are of the whole run."""

    mode: Mode
    on_stale: OnStale
    layout: Layout
    tokens_per_s: float
    """Trained tokens a second."""
    rollout_share: float
    """Time in which a step waited for rollouts."""
    trainer_idle: float
    generator_idle: float
    mean_live: float
    """Live requests of a generator, while it had some."""
    staleness: float
    """Versions behind, mean over trained tokens."""
    oldest: int
    """The most that a trained token was behind."""
    trained_length: float
    """Mean tokens of a trained answer."""
    drawn_length: float
    """Mean tokens of the answers to all drawn prompts, had each been finished."""
    stale: int
    """Groups trained beyond the bound, or dropped for it."""


def simulate(setting: Setting, mode: Mode, layout: Layout, on_stale: OnStale = "wait") -> Outcome:
    """Train `setting.steps` steps on virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(setting, mode, layout, on_stale))
    finally:
        loop.close()


async def _run(setting: Setting, mode: Mode, layout: Layout, on_stale: OnStale) -> Outcome:
    loop, costs = asyncio.get_running_loop(), setting.costs
    backend = ReplayBackend(costs, setting.lengths, [Replica(costs) for _ in range(layout.generators)])
    books, draw = Ledger(["d"]), Prompts()
    feed = _feed(setting, mode, on_stale, _groups(setting, backend, books), draw)
    trained: list[RolloutGroup] = []
    training = waited = 0.0
    behind: list[tuple[int, int]] = []
    stale = 0
    for step in range(setting.steps):
        backend.sync_weights(None, step)
        await asyncio.sleep(costs.sync)
        feed.advance(step)
        started = loop.time()
        batch = await feed.collect(step, setting.prompts)
        waited += loop.time() - started
        feed.updating(step, is_last=step + 1 == setting.steps)
        seconds = _tokens(batch.admitted) * costs.train_token / layout.trainers
        await asyncio.sleep(seconds)
        training += seconds
        started = loop.time()
        await feed.settle()
        waited += loop.time() - started
        for group in batch.admitted:
            books.train(group.ticket.id, 1)
            runs = [run for rollout in group.rollouts for run in rollout.segments[0].versions]
            behind += [(step - run.policy.version, run.stop - run.start) for run in runs]
        trained += batch.admitted
        stale += batch.stale + sum(reason == "stale" for _, reason in batch.dropped)
        books.close(step, {"d": 1.0})
    total = loop.time()
    await feed.close()
    generating = sum(replica.busy_s for replica in backend.replicas)
    whole = total * layout.generators
    return Outcome(
        mode=mode,
        on_stale=on_stale,
        layout=layout,
        tokens_per_s=_tokens(trained) / total,
        rollout_share=waited / total,
        trainer_idle=1 - training / total - (generating / whole if layout.is_shared else 0),
        generator_idle=1 - generating / whole - (training / total if layout.is_shared else 0),
        mean_live=sum(replica.live_s for replica in backend.replicas) / generating,
        staleness=sum(age * count for age, count in behind) / sum(count for _, count in behind),
        oldest=max(age for age, _ in behind),
        trained_length=statistics.fmean(r.response_length for group in trained for r in group.rollouts),
        drawn_length=_drawn_length(setting, draw.next),
        stale=stale,
    )


def _tokens(groups: list[RolloutGroup]) -> int:
    return sum(rollout.response_length for group in groups for rollout in group.rollouts)


def _drawn_length(setting: Setting, prompts: int) -> float:
    of = setting.lengths.of
    return statistics.fmean(of(1000 * ticket + n) for ticket in range(prompts) for n in range(setting.group_size))


def _groups(setting: Setting, backend: ReplayBackend, books: Ledger) -> GroupRunner:
    return GroupRunner(
        backend=backend,
        scoring=Scoring(),
        books=books,
        decode=lambda ids: "",
        filters=[],
        sampling={"d": SamplingParams(max_new_tokens=setting.lengths.longest)},
        group_size=setting.group_size,
        seed_of=seed_of,
    )


def _feed(setting: Setting, mode: Mode, on_stale: OnStale, groups: GroupRunner, draw: Prompts) -> Feed:
    if mode == "async":
        return AheadScheduler(
            groups,
            draw,
            prompts=setting.prompts,
            steps=setting.steps,
            max_staleness=setting.staleness,
            max_draws=sys.maxsize,
            on_stale=on_stale,
        )
    scheduler = RolloutScheduler(groups, draw, sys.maxsize)
    return scheduler if mode == "sync" else OneStepScheduler(scheduler, draw, setting.prompts)
