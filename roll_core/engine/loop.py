"""The loop, nothing else: draw, roll out, score, credit, update, sync, observe.

What takes part in a step is derived from what components require (`dataflow`); the engine knows no algorithm, no
verifier and no backend by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Literal

import numpy as np

from roll_core.checkpoint import Checkpoint
from roll_core.contracts import MiniBatch, Tracker
from roll_core.credit import greedy_rewards
from roll_core.engine.parts import Parts, RunResult
from roll_core.engine.saves import Saves
from roll_core.engine.state import restore, snapshot
from roll_core.engine.telling import facts_after, facts_of, probes_of
from roll_core.evaluation import metrics_of
from roll_core.interrupt import StopRequest, run_apart
from roll_core.rollout.collected import StepRollouts
from roll_core.step_metrics import Stopwatch, rollout_metrics, staleness_metrics
from roll_core.types import Batch, ColumnSpec, RolloutGroup, batch_of
from roll_core.watch import take_request

logger = logging.getLogger(__name__)


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
        self._data_ended = False
        self._is_updating = False
        self._is_asleep = False
        if resume is not None:
            self.step = restore(parts, self.result, resume)
        self._saves = Saves(parts, self.result)
        self._state = snapshot(parts, self.step)

    def run(self) -> RunResult:
        """Train to the last step. Trackers and plugins always hear how it ended."""
        self.parts.watch.attach(probes_of(self.parts))
        self.parts.watch.update(**facts_of(self.parts, self.step))
        with self._stop.listening():
            return run_apart(self._run())

    async def _run(self) -> RunResult:
        parts = self.parts
        status: Literal["finished", "interrupted", "failed"] = "failed"
        parts.checkpoints.clean()
        parts.checkpoints.forget_after(self.step)
        async with AsyncExitStack() as closing:
            if parts.executor is not None:
                closing.callback(parts.executor.close)
            closing.callback(parts.thread.shutdown, wait=False)
            closing.callback(parts.strategy.close)
            closing.push_async_callback(parts.backend.close)
            closing.push_async_callback(parts.verifiers.close)
            closing.push_async_callback(parts.feed.close)
            closing.callback(self._saves.close)
            try:
                with parts.watch.stage("start of the verifiers", step=self.step):
                    await parts.verifiers.start()
                for tracker in parts.trackers:
                    tracker.start(parts.run)
                parts.observers.notify("roll_on_run_start", run=parts.run)
                with self._stage("sync", Stopwatch(), is_blocking=True):
                    self._sync()
                await self._train()
                status = "finished" if self._is_over else "interrupted"
            except (KeyboardInterrupt, asyncio.CancelledError):
                status = "interrupted"
                self._saves.abandon()
                raise
            finally:
                self.result.status = status
                parts.watch.update(outcome=status)
                for tracker in parts.trackers:
                    self._guarded(tracker, lambda t: t.finish(status))
                parts.observers.notify("roll_on_run_end", status=status)
        return self.result

    @property
    def _is_over(self) -> bool:
        return self._data_ended or self.step >= self.parts.config.steps

    async def _train(self) -> None:
        every = self.parts.config.checkpoint.every
        await self._evaluate_if_due()
        while not self._is_over and not self._stop.requested:
            started = time.perf_counter()
            metrics = await self._step_or_save()
            if metrics is None:
                self._data_ended = True
                logger.warning("the data have ended after step %d", self.step)
                break
            self.result.train_seconds += time.perf_counter() - started
            self._report(metrics)
            self._scale_if_asked()
            await self._saves.look_after()
            await self._evaluate_if_due()
            if every and self.step % every == 0:
                await self._saves.save(self.step)
        await self._evaluate_if_due()
        await self._saves.finish()
        if (self.parts.config.checkpoint.at_end or self._stop.requested) and not self._saves.is_saved(self.step):
            await self._saves.save(self.step, is_last=True)

    async def _step_or_save(self) -> dict[str, float] | None:
        """One step. Where it fails before the update, the weights are still those of the last step: they are saved."""
        try:
            return await self._one_step()
        except Exception:
            if not self._is_updating:
                await self._saves.rescue(self.step, self._state)
            raise

    async def _one_step(self) -> dict[str, float] | None:
        """Draw to sync; None when the data have ended and there is nothing to train on."""
        parts, seconds = self.parts, Stopwatch()
        is_blocking = not parts.feed.is_ahead
        with self._stage("rollout", seconds):
            rollouts = await parts.feed.collect(self.step, parts.config.batch.prompts)
        parts.observers.notify("roll_on_groups_scored", step=self.step, groups=rollouts.groups)
        for alarm in parts.scorer.alarms(rollouts.groups):
            logger.warning("step %d: %s", self.step, alarm)
        metrics = staleness_metrics(rollouts, self.step)
        if not rollouts.admitted:
            parts.ledger.close(self.step, parts.mixer.weights(self.step))
            self._state = snapshot(parts, self.step)
            return None
        self._hand_over(seconds)
        with self._stage("columns", seconds, is_blocking=is_blocking):
            parts.credit.shape_rewards(rollouts.admitted)
            batch = await self._batch(rollouts.admitted)
        with self._stage("credit", seconds, is_blocking=True):
            metrics |= parts.credit.advantages(batch)
            mini_batches = parts.credit.mini_batches(batch, self.step)
        await self._saves.look_after()  # one that has become whole must not be lost with this update
        parts.observers.notify("roll_on_batch_ready", step=self.step, batch=batch)
        self._is_updating = True
        parts.feed.updating(self.step, is_last=self.step + 1 >= parts.config.steps)
        with self._stage("update", seconds, is_blocking=is_blocking):
            metrics |= await self._update(batch, mini_batches)
        with self._stage("settle", seconds):
            await parts.feed.settle()
        metrics |= self._commit(rollouts, batch, metrics)
        with self._stage("sync", seconds, is_blocking=True):
            self._sync()
        self._is_updating = False
        metrics |= self._saves.take_metrics()
        take_metrics = getattr(parts.backend, "take_metrics", None)
        metrics |= take_metrics() if take_metrics is not None else {}
        if parts.executor is not None:
            metrics |= parts.executor.transfers.take_metrics()
        metrics |= rollout_metrics(rollouts, seconds.times, is_ahead=parts.feed.is_ahead)
        return metrics | parts.scorer.statistics(rollouts.groups)

    async def _update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        """Optimiser steps over the batch."""
        if not mini_batches:
            return {"train/empty_steps": 1.0}
        return await self.parts.apart(lambda: self.parts.strategy.update(batch, mini_batches))

    @contextmanager
    def _stage(self, name: str, seconds: Stopwatch, *, is_blocking: bool = False) -> Iterator[None]:
        """A stage of the step: timed, watched over, bounded."""
        with seconds(name), self.parts.watch.stage(name, step=self.step + 1, is_blocking=is_blocking):
            yield

    def _scale_if_asked(self) -> None:
        """Let rollout replicas join or leave, as `roll scale` asks for it."""
        request = take_request(self.parts.run.folder)
        if request is None:
            return
        scale = getattr(self.parts.backend, "scale", None)
        if scale is None:
            logger.warning("the rollout backend has no replicas that could join or leave; `roll scale` changes nothing")
            return
        with self._stage("scaling", Stopwatch(), is_blocking=True):
            scale(request.replicas)
        self.parts.watch.update(replicas=request.replicas)

    def _hand_over(self, seconds: Stopwatch) -> None:
        """Let the backend give up the devices that it shares with the strategy."""
        if self.parts.takes_turns:
            with self._stage("hand_over", seconds, is_blocking=True):
                self.parts.backend.sleep()  # type: ignore[attr-defined]  # assembly has checked that it can
            self._is_asleep = True

    def _sync(self) -> None:
        """Generate with the weights of now."""
        parts = self.parts
        if self._is_asleep:
            parts.backend.wake_up()  # type: ignore[attr-defined]  # what can sleep can wake up
            self._is_asleep = False
        parts.backend.sync_weights(parts.strategy.weight_source(), self.step)
        parts.feed.advance(self.step)

    async def _batch(self, groups: Sequence[RolloutGroup]) -> Batch:
        parts = self.parts
        batch = batch_of(groups, tuple(parts.config.domains))
        batch.sampling = dict(parts.sampling)
        if parts.flow.needs_greedy:
            batch.add("greedy_rewards", greedy_rewards(groups), ColumnSpec("greedy_rewards", "float32", "rollout"))
        if parts.flow.strategy_columns:
            columns = await parts.apart(lambda: parts.strategy.compute(batch, parts.flow.strategy_columns))
            for name, values in columns.items():
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
        self._state = snapshot(parts, self.step)
        for tracker in parts.trackers:
            self._guarded(tracker, lambda t: t.log_rollouts(self.step, rollouts.groups))
        return report.mix_metrics() | parts.draw.metrics()

    def _report(self, metrics: dict[str, float]) -> None:
        self.result.add(metrics)
        self.parts.watch.update(**facts_after(self.step, metrics))
        for tracker in self.parts.trackers:
            self._guarded(tracker, lambda t: t.log(self.step, metrics))
        self.parts.observers.notify("roll_on_step_end", step=self.step, metrics=metrics)

    async def _evaluate_if_due(self) -> None:
        """Evaluate at the start, at the end and every n steps, once; one that a stop put off is made up on resume."""
        evaluator, settings = self.parts.evaluator, self.parts.config.eval
        at_this_step = bool(settings.every) and self.step % settings.every == 0 if self.step else settings.at_start
        is_due = settings.at_end if self._is_over else at_this_step
        if evaluator is None or not is_due or self.step in self.result.evaluations or self._stop.requested:
            return
        started = time.perf_counter()
        with self._stage("evaluation", Stopwatch()):
            results = await evaluator.run()
        self.result.evaluations[self.step] = results
        for domain, result in results.items():
            if result.unscored:
                logger.warning("evaluation: %d rollouts of domain '%s' have no score", result.unscored, domain)
        metrics = metrics_of(results) | {"time/eval_s": time.perf_counter() - started}
        for tracker in self.parts.trackers:
            self._guarded(tracker, lambda t: t.log(self.step, metrics))

    def _guarded(self, tracker: Tracker, action: Callable[[Tracker], None]) -> None:
        """A tracker is an observer: it may fail without taking the run with it, unless the run is strict."""
        try:
            action(tracker)
        except Exception:
            if self.parts.config.strict:
                raise
            logger.exception("tracker %s failed; the run goes on", type(tracker).__name__)
