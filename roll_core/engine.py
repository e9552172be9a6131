"""The loop, nothing else: draw, roll out, score, credit, update, sync, observe.

What takes part in a step is derived from what components require (`dataflow`); the engine knows no algorithm, no
verifier and no backend by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roll_core.checkpoint import Checkpoint, CheckpointStore
from roll_core.config.schema import RunConfig
from roll_core.contracts import Mixer, RolloutBackend, RunInfo, Tracker, TrainStrategy
from roll_core.credit import greedy_rewards
from roll_core.dataflow import Dataflow
from roll_core.errors import CheckpointError, ConfigError, StarvationError
from roll_core.evaluation import DomainResult, Evaluator, metrics_of
from roll_core.interrupt import StopRequest, run_apart
from roll_core.rollout.scheduler import RolloutScheduler, StepRollouts
from roll_core.rooms import Books, CreditRoom, Drawing, Observers, ScoringReport, Workers
from roll_core.step_metrics import rollout_metrics
from roll_core.types import Batch, ColumnSpec, RolloutGroup, batch_of

logger = logging.getLogger(__name__)

STATE_VERSION = 1


@dataclass(slots=True)
class Parts:
    """Everything a run is made of, built and wired by `assembly`."""

    config: RunConfig
    run: RunInfo
    flow: Dataflow
    draw: Drawing
    mixer: Mixer
    ledger: Books
    scheduler: RolloutScheduler
    scorer: ScoringReport
    verifiers: Workers
    credit: CreditRoom
    strategy: TrainStrategy
    backend: RolloutBackend
    evaluator: Evaluator | None
    trackers: Sequence[Tracker]
    checkpoints: CheckpointStore
    observers: Observers
    manifest: Mapping[str, str]


@dataclass(slots=True)
class RunResult:
    """What a run came to."""

    status: str
    steps: int
    metrics: list[dict[str, float]] = field(default_factory=list)
    evaluations: dict[int, dict[str, DomainResult]] = field(default_factory=dict)
    train_seconds: float = 0.0
    """Wall-clock seconds of the training steps, evaluations and checkpoints left out."""


class Engine:
    """Runs a wired set of parts from a step to the last one.

    Args:
        parts: see `Parts`.
        resume: checkpoint to go on from.
    """

    def __init__(self, parts: Parts, resume: Checkpoint | None = None) -> None:
        self.parts = parts
        self.step = 0
        self.result = RunResult("running", 0)
        self._stop = StopRequest()
        if resume is not None:
            self._load(resume)
        self._state = self._snapshot()

    def run(self) -> RunResult:
        """Train to the last step. Trackers and plugins always hear how it ended."""
        with self._stop.listening():
            return run_apart(self._run())

    async def _run(self) -> RunResult:
        parts, status = self.parts, "failed"
        try:
            await parts.verifiers.start()
            for tracker in parts.trackers:
                tracker.start(parts.run)
            parts.observers.notify("roll_on_run_start", run=parts.run)
            parts.backend.sync_weights(parts.strategy.weight_source(), self.step)
            await self._train()
            status = "interrupted" if self._stop.requested else "finished"
        except (KeyboardInterrupt, asyncio.CancelledError):
            status = "interrupted"
            raise
        finally:
            self.result.status = status
            for tracker in parts.trackers:
                self._guarded(tracker, lambda t: t.finish(status))
            parts.observers.notify("roll_on_run_end", status=status)
            await parts.verifiers.close()
            await parts.backend.close()
            parts.strategy.close()
        return self.result

    async def _train(self) -> None:
        config = self.parts.config
        if config.eval.at_start and self.step == 0:
            await self._evaluate()
        while self.step < config.steps and not self._stop.requested:
            started = time.perf_counter()
            try:
                metrics = await self._one_step()
            except StarvationError:
                if self.step and not self._is_saved():
                    self.save()
                raise
            self.result.train_seconds += time.perf_counter() - started
            due = config.eval.every and self.step % config.eval.every == 0 and self.step < config.steps
            if due and not self._stop.requested:
                metrics |= await self._evaluate(log=False)
            self._report(metrics)
            if config.checkpoint.every and self.step % config.checkpoint.every == 0:
                self.save()
        if (config.checkpoint.at_end or self._stop.requested) and not self._is_saved():
            self.save()
        if config.eval.at_end and self.step == config.steps and not self._stop.requested:
            await self._evaluate()

    async def _one_step(self) -> dict[str, float]:
        parts, seconds = self.parts, _Stopwatch()
        with seconds("rollout"):
            rollouts = await parts.scheduler.collect(self.step, parts.config.batch.prompts)
        parts.observers.notify("roll_on_groups_scored", step=self.step, groups=rollouts.groups)
        for alarm in parts.scorer.alarms(rollouts.groups):
            logger.warning("step %d: %s", self.step, alarm)
        with seconds("columns"):
            parts.credit.shape_rewards(rollouts.admitted)
            batch = self._batch(rollouts.admitted)
        with seconds("credit"):
            metrics = parts.credit.advantages(batch)
            mini_batches = parts.credit.mini_batches(batch, self.step)
        parts.observers.notify("roll_on_batch_ready", step=self.step, batch=batch)
        with seconds("update"):
            metrics |= parts.strategy.update(batch, mini_batches) if mini_batches else {"train/empty_steps": 1.0}
        with seconds("sync"):
            parts.backend.sync_weights(parts.strategy.weight_source(), self.step + 1)
        metrics |= self._commit(rollouts, batch, metrics)
        return metrics | rollout_metrics(rollouts, seconds.times) | parts.scorer.statistics(rollouts.groups)

    def _batch(self, groups: Sequence[RolloutGroup]) -> Batch:
        parts = self.parts
        batch = batch_of(groups, tuple(parts.config.domains))
        batch.sampling = dict(parts.scheduler.sampling)
        if parts.flow.needs_greedy:
            batch.add("greedy_rewards", greedy_rewards(groups), ColumnSpec("greedy_rewards", "float32", "rollout"))
        if parts.flow.strategy_columns:
            for name, values in parts.strategy.compute(batch, parts.flow.strategy_columns).items():
                batch.add(name, values)
        return batch

    def _commit(self, rollouts: StepRollouts, batch: Batch, metrics: Mapping[str, float]) -> dict[str, float]:
        """The update is done: close the books and let stateful parts move on."""
        parts = self.parts
        groups = batch.rollout_group[batch.token_rollout[batch.loss_mask]]
        for group, tokens in zip(rollouts.admitted, np.bincount(groups, minlength=len(rollouts.admitted)), strict=True):
            parts.ledger.train(group.ticket.id, int(tokens))
        report = parts.ledger.close(self.step, parts.mixer.weights(self.step))
        parts.mixer.observe(rollouts.groups)
        parts.credit.observe(metrics, batch)
        self.step += 1
        self.result.steps = self.step
        self._state = self._snapshot()
        for tracker in parts.trackers:
            self._guarded(tracker, lambda t: t.log_rollouts(self.step, rollouts.groups))
        return report.mix_metrics() | parts.draw.metrics()

    def _report(self, metrics: dict[str, float]) -> None:
        self.result.metrics.append(metrics)
        for tracker in self.parts.trackers:
            self._guarded(tracker, lambda t: t.log(self.step, metrics))
        self.parts.observers.notify("roll_on_step_end", step=self.step, metrics=metrics)

    async def _evaluate(self, *, log: bool = True) -> dict[str, float]:
        evaluator = self.parts.evaluator
        if evaluator is None:
            return {}
        started = time.perf_counter()
        results = await evaluator.run()
        self.result.evaluations[self.step] = results
        metrics = metrics_of(results) | {"time/eval_s": time.perf_counter() - started}
        if log:
            for tracker in self.parts.trackers:
                self._guarded(tracker, lambda t: t.log(self.step, metrics))
        return metrics

    def _guarded(self, tracker: Tracker, action: Callable[[Tracker], None]) -> None:
        """A tracker is an observer: it may fail without taking the run with it, unless the run is strict."""
        try:
            action(tracker)
        except Exception:
            if self.parts.config.strict:
                raise
            logger.exception("tracker %s failed; the run goes on", type(tracker).__name__)

    # --- state ---

    def save(self) -> Checkpoint:
        """Write a checkpoint of the last committed step."""
        parts = self.parts
        evaluations = {s: {d: r.as_dict() for d, r in e.items()} for s, e in self.result.evaluations.items()}
        state = self._state | {"train_seconds": self.result.train_seconds, "evaluations": evaluations}
        checkpoint = parts.checkpoints.save(self.step, state, parts.strategy.save)
        parts.observers.notify("roll_on_checkpoint_saved", step=self.step, folder=checkpoint.folder)
        return checkpoint

    def _snapshot(self) -> dict[str, Any]:
        """State between two steps; a step that is broken off is redone whole from it."""
        parts = self.parts
        return {
            "version": STATE_VERSION,
            "step": self.step,
            "seed": parts.config.seed,
            "run_id": parts.run.run_id,
            "plugins": dict(parts.manifest),
            "draw": parts.draw.state_dict(),
            "ledger": parts.ledger.state_dict(),
            "credit": parts.credit.state_dict(),
        }

    def _load(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.read_state()
        if state.get("version") != STATE_VERSION:
            raise CheckpointError(f"{checkpoint.folder} has state version {state.get('version')}, need {STATE_VERSION}")
        if state["seed"] != self.parts.config.seed:
            raise ConfigError(
                f"the checkpoint was made with seed {state['seed']}, the config says {self.parts.config.seed}"
            )
        self.step = self.result.steps = int(state["step"])
        self.parts.draw.load_state_dict(state["draw"])
        self.parts.ledger.load_state_dict(state["ledger"])
        self.parts.credit.load_state_dict(state["credit"])
        self.parts.strategy.load(checkpoint.strategy_folder)
        self.result.train_seconds = float(state["train_seconds"])
        self.result.evaluations = {
            int(s): {d: DomainResult.from_dict(r) for d, r in e.items()} for s, e in state["evaluations"].items()
        }

    def _is_saved(self) -> bool:
        latest = self.parts.checkpoints.latest()
        return latest is not None and latest.step == self.step


class _Stopwatch:
    """Wall-clock seconds per named stage of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - started
