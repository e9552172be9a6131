"""Throughput of synchronous, one-step and asynchronous rollouts on a long-tailed workload, side by side in one run.

    python benchmarks/async.py [--model DIR] [--staleness 4] [--prompts 16] [--group-size 8] [--steps 40]

The schedulers are the engine's own. Generation and training have a device each; how long their work takes is replayed
on a virtual clock from durations that this script measures first, with the local backend and strategy on `--model` (a
randomly initialised model of SmolLM2-135M's shapes without one): the time of a decode step by the number of live
requests, and training seconds a token. `--decode-ms` and `--train-us` replay other measurements. Response lengths are
log-normal (`--sigma`), cut at `--max-tokens`; the slots of the generator are all that one step needs in sync mode.

Prints, per mode, trained tokens a second, how long each device idled, and the staleness of what was trained. The last
line is `ratio one_step <x> async <y>`: throughput over that of sync.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from train_rate import clipped_ratio, grpo_batch, random_model

from roll_core.contracts import MiniBatch, OptimSettings, Term, TrainSetup
from roll_core.data import Ledger
from roll_core.rollout.ahead import AheadScheduler
from roll_core.rollout.feed import Feed
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.one_step import OneStepScheduler
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.types import (
    Completion,
    GenerateRequest,
    PolicyRef,
    Prompt,
    RewardRecord,
    Rollout,
    RolloutGroup,
    SamplingParams,
    Ticket,
    Verdict,
    VersionRun,
)

LIVE = (1, 4, 16, 64)
"""Numbers of live requests at which a decode step is measured."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]  # asyncio's own attribute, not in its stubs

        def jump(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]  # as above

    def time(self) -> float:
        """The virtual seconds since the start."""
        return self._now


@dataclass(slots=True)
class Costs:
    """Measured durations, in seconds."""

    decode: dict[int, float]
    """Of one decode step, by the number of live requests."""
    train_token: float
    """Of training one token."""

    def step(self, live: int) -> float:
        """Of a decode step with `live` requests: linear between what was measured, and beyond it."""
        known = sorted(self.decode)
        upper = next((n for n in known if n >= live), known[-1])
        lower = max((n for n in known if n <= live), default=known[0])
        if upper == lower:
            return self.decode[upper] * max(1.0, live / known[-1])
        share = (live - lower) / (upper - lower)
        return self.decode[lower] + share * (self.decode[upper] - self.decode[lower])


@dataclass(slots=True)
class Device:
    """How long a device worked."""

    busy_s: float = 0.0


@dataclass(slots=True)
class ReplayBackend:
    """A generator with slots and continuous batching whose decode steps take as long as they were measured to."""

    costs: Costs
    length_of: Callable[[GenerateRequest], int]
    slots: int
    policy_version: int = 0
    device: Device = field(default_factory=Device)
    tokens: int = 0
    _waiting: list[list[Any]] = field(default_factory=list)
    _live: list[list[Any]] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def generate(self, request: GenerateRequest) -> Completion:
        """Generate as many tokens as the request's length says, once there is a slot."""
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append([self.length_of(request), [], future])
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._serve())
        versions = await future
        count = len(versions)
        runs = tuple(VersionRun(i, i + 1, PolicyRef(v)) for i, v in enumerate(versions))
        logprobs = np.zeros(count, np.float32)
        return Completion(request.request_id, np.zeros(count, np.int32), logprobs, runs, "stop")

    async def _serve(self) -> None:
        while self._waiting or self._live:
            free = self.slots - len(self._live)
            self._live += self._waiting[:free]
            del self._waiting[:free]
            seconds = self.costs.step(len(self._live))
            await asyncio.sleep(seconds)
            self.device.busy_s += seconds
            self.tokens += len(self._live)
            for one in self._live:
                one[1].append(self.policy_version)
                if len(one[1]) >= one[0]:
                    one[2].set_result(one[1])
            self._live = [one for one in self._live if len(one[1]) < one[0]]

    def abort(self, request_id: str) -> None:
        """Nothing is stopped early here."""

    def sync_weights(self, source: Any, version: int) -> None:
        """Tokens carry `version` from now on."""
        self.policy_version = version

    def set_barrier(self, barrier: Any) -> None:
        """Nothing is stopped early here."""

    async def close(self) -> None:
        """Nothing to free."""


class Scoring:
    """Every answer is half right; verdicts take no time."""

    async def score(self, rollout: Rollout) -> None:
        """Give the verdict."""
        rollout.verdict = Verdict.incorrect(score=0.5)

    def compose(self, group: RolloutGroup) -> None:
        """Give the reward."""
        for rollout in group.scored:
            rollout.rewards = [RewardRecord("score", 0.5)]


class Prompts:
    """Numbered prompts without end."""

    def __init__(self) -> None:
        self.next = 0

    def draw(self, count: int, step: int) -> list[tuple[Ticket, Prompt]]:
        """The next prompts."""
        tickets = [Ticket(n, "d", str(n), n) for n in range(self.next, self.next + count)]
        self.next += count
        return [(ticket, self.prompt_of(ticket)) for ticket in tickets]

    def prompt_of(self, ticket: Ticket) -> Prompt:
        """The prompt of a ticket."""
        return Prompt(ticket.prompt_id, "d", text="x", token_ids=(1, 2, 3))

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """None."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """None."""


@dataclass(slots=True)
class Outcome:
    """What a mode came to."""

    mode: str
    tokens_per_s: float
    train_idle: float
    rollout_idle: float
    staleness: float


def main() -> None:
    """Run the benchmark from the command line."""
    options = _options()
    costs = _costs(options)
    decode = ", ".join(f"{n}: {1e3 * s:.1f} ms" for n, s in sorted(costs.decode.items()))
    print(f"replayed: decode step by live requests {decode}; training {1e6 * costs.train_token:.0f} us a token")
    outcomes = [_simulate(mode, options, costs) for mode in ("sync", "one_step", "async")]
    for one in outcomes:
        print(
            f"{one.mode:<9} {one.tokens_per_s:8.1f} trained tokens/s   idle: trainer {one.train_idle:5.1%}, generator "
            f"{one.rollout_idle:5.1%}   staleness {one.staleness:.2f}"
        )
    sync, one_step, ahead = (one.tokens_per_s for one in outcomes)
    print(f"ratio one_step {one_step / sync:.2f} async {ahead / sync:.2f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="Hugging Face folder to measure with")
    parser.add_argument("--staleness", type=int, default=4, help="max_staleness of async")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--median", type=float, default=150.0, help="median response length in tokens")
    parser.add_argument("--sigma", type=float, default=1.0, help="of the log-normal response lengths")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--decode-ms", help="replay instead of measuring, like 1:20,16:30,64:60")
    parser.add_argument("--train-us", type=float, help="replay instead of measuring: microseconds a token")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


# --- replay -----------------------------------------------------------------------------------------------------------


def _simulate(mode: str, options: argparse.Namespace, costs: Costs) -> Outcome:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(mode, options, costs))
    finally:
        loop.close()


async def _run(mode: str, options: argparse.Namespace, costs: Costs) -> Outcome:
    loop = asyncio.get_running_loop()
    backend = ReplayBackend(costs, _lengths(options), options.prompts * options.group_size)
    books, trainer = Ledger(["d"]), Device()
    feed = _feed(mode, options, backend, books)
    tokens, behind = 0, []
    for step in range(options.steps):
        backend.sync_weights(None, step)
        feed.advance(step)
        batch = await feed.collect(step, options.prompts)
        feed.updating(step, is_last=step + 1 == options.steps)
        count = sum(rollout.response_length for group in batch.admitted for rollout in group.rollouts)
        seconds = count * costs.train_token
        await asyncio.sleep(seconds)
        trainer.busy_s += seconds
        tokens += count
        runs = [run for g in batch.admitted for r in g.rollouts for run in r.segments[0].versions]
        behind.append(statistics.fmean(step - run.policy.version for run in runs))
        await feed.settle()
        for group in batch.admitted:
            books.train(group.ticket.id, 1)
        books.close(step, {"d": 1.0})
    total = loop.time()
    await feed.close()
    return Outcome(
        mode,
        tokens / total,
        1 - trainer.busy_s / total,
        1 - backend.device.busy_s / total,
        statistics.fmean(behind),
    )


def _feed(mode: str, options: argparse.Namespace, backend: ReplayBackend, books: Ledger) -> Feed:
    groups = GroupRunner(
        backend=backend,
        scoring=Scoring(),
        books=books,
        decode=lambda ids: "",
        filters=[],
        sampling={"d": SamplingParams(max_new_tokens=options.max_tokens)},
        group_size=options.group_size,
        seed_of=lambda ticket, index, attempt: ticket.id * 1000 + index,
    )
    draw = Prompts()
    if mode == "async":
        return AheadScheduler(
            groups,
            draw,
            prompts=options.prompts,
            steps=options.steps,
            max_staleness=options.staleness,
            max_draws=sys.maxsize,
        )
    scheduler = RolloutScheduler(groups, draw, sys.maxsize)
    return scheduler if mode == "sync" else OneStepScheduler(scheduler, draw, options.prompts)


def _lengths(options: argparse.Namespace) -> Callable[[GenerateRequest], int]:
    def length(request: GenerateRequest) -> int:
        rng = random.Random(f"{options.seed}/{request.seed}")
        drawn = rng.lognormvariate(math.log(options.median), options.sigma)
        return max(1, min(round(drawn), int(options.max_tokens)))

    return length


# --- measurement ------------------------------------------------------------------------------------------------------


def _costs(options: argparse.Namespace) -> Costs:
    if options.decode_ms and options.train_us:
        pairs = (pair.split(":") for pair in options.decode_ms.split(","))
        return Costs({int(n): float(ms) / 1e3 for n, ms in pairs}, options.train_us / 1e6)
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or random_model(Path(scratch))
        return Costs(_decode_times(model), _train_time(model))


def _decode_times(model: Path) -> dict[int, float]:
    from roll_core.builtin.local_rollout.backend import LocalRolloutBackend

    new = 24
    backend = LocalRolloutBackend(model=model, seed=0, max_slots=max(LIVE))

    async def timed(live: int) -> float:
        sampling = SamplingParams(max_new_tokens=new)
        requests = [GenerateRequest((5, 6, 7), sampling, n, f"{live}/{n}/{time.perf_counter()}") for n in range(live)]
        started = time.perf_counter()
        await asyncio.gather(*(backend.generate(request) for request in requests))
        return (time.perf_counter() - started) / new

    async def every() -> dict[int, float]:
        await timed(max(LIVE))
        times = {live: min([await timed(live) for _ in range(2)]) for live in LIVE}
        await backend.close()
        return times

    return asyncio.run(every())


def _train_time(model: Path) -> float:
    """Seconds a trained token of a GRPO batch takes, optimiser included."""
    from roll_core.builtin.local_train.strategy import LocalTrainStrategy

    shape = argparse.Namespace(prompts=4, group_size=8, prompt_tokens=40, response_tokens=100)
    batch = grpo_batch(shape, 1000)
    weights = (batch.loss_mask / batch.loss_mask.sum()).astype(np.float32)
    mini = MiniBatch(np.arange(batch.n_segments), (Term("policy", clipped_ratio, weights),))
    strategy = LocalTrainStrategy(setup=TrainSetup(model, OptimSettings(lr=1e-6), 100))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        strategy.update(batch, [mini])
        seconds.append(time.perf_counter() - started)
    return min(seconds) / int(batch.loss_mask.sum())


if __name__ == "__main__":
    main()
