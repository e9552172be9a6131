"""What the engine is handed, and what it hands back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from roll_core.checkpoint import CheckpointStore
from roll_core.cluster import Executor
from roll_core.config.schema import RunConfig
from roll_core.contracts import Mixer, RolloutBackend, RunInfo, Tracker, TrainStrategy
from roll_core.dataflow import Dataflow
from roll_core.evaluation import DomainResult, Evaluator
from roll_core.rollout.feed import Feed
from roll_core.rooms import Books, CreditRoom, Drawing, Observers, ScoringReport, Stateful, Workers
from roll_core.types import SamplingParams
from roll_core.watch import Watch

T = TypeVar("T")

KEPT_STEPS = 1000
"""Steps whose metrics stay in memory; trackers hold them all."""


@dataclass(slots=True)
class Parts:
    """Everything a run is made of, built and wired by `assembly`."""

    config: RunConfig
    run: RunInfo
    flow: Dataflow
    draw: Drawing
    mixer: Mixer
    ledger: Books
    feed: Feed
    sampling: Mapping[str, SamplingParams]
    scorer: ScoringReport
    verifiers: Workers
    credit: CreditRoom
    components: Mapping[str, Stateful]
    """Filters, rewards, estimators and losses that keep state, by the config path they were named at."""
    strategy: TrainStrategy
    backend: RolloutBackend
    evaluator: Evaluator | None
    trackers: Sequence[Tracker]
    checkpoints: CheckpointStore
    observers: Observers
    manifest: Mapping[str, str]
    watch: Watch
    executor: Executor | None = None
    """Started worker processes, where the run has some; ended after backend and strategy."""
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "roll-strategy"))
    """Where the strategy works while rollouts go on: one thread, since each would keep buffers of its own."""
    takes_turns: bool = False
    """Whether the backend sleeps while the strategy works, since they share devices."""

    async def apart(self, work: Callable[[], T]) -> T:
        """Run what the strategy does; in a thread where rollouts go on meanwhile."""
        if not self.feed.is_ahead:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)


@dataclass(slots=True)
class RunResult:
    """What a run came to."""

    status: str
    steps: int
    metrics: list[dict[str, float]] = field(default_factory=list)
    """Of the newest steps, at most `KEPT_STEPS`."""
    evaluations: dict[int, dict[str, DomainResult]] = field(default_factory=dict)
    train_seconds: float = 0.0
    """Wall-clock seconds of the training steps, evaluations and checkpoints left out."""

    def add(self, metrics: dict[str, float]) -> None:
        """Keep the metrics of one more step."""
        self.metrics.append(metrics)
        del self.metrics[:-KEPT_STEPS]
