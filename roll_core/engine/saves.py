"""Checkpoints while the run goes on: begun between two steps, written behind the next ones, announced when whole."""

from __future__ import annotations

import logging
from typing import Any

from roll_core.checkpoint import Checkpoint, Saver
from roll_core.engine.parts import Parts, RunResult
from roll_core.engine.state import snapshot, with_result
from roll_core.errors import RollError

logger = logging.getLogger(__name__)


class Saves:
    """The checkpoints of a running engine.

    Args:
        parts: of the run.
        result: what the run has come to goes into every checkpoint.
    """

    def __init__(self, parts: Parts, result: RunResult) -> None:
        self._parts = parts
        self._result = result
        self._saver = Saver(parts.checkpoints, parts.strategy, parts.config.checkpoint.on_error)

    def is_saved(self, step: int) -> bool:
        """Whether a whole checkpoint of `step` lies there."""
        return self._saver.is_saved(step)

    def take_metrics(self) -> dict[str, float]:
        """Seconds that saving took since the last call."""
        return self._saver.take_metrics()

    async def save(self, step: int, *, is_last: bool = False) -> None:
        """Begin the checkpoint of a committed step, and of what is rolled out ahead of the next ones.

        Args:
            step: committed steps.
            is_last: nothing follows: wait until it is whole, and let no failure pass.
        """
        await self.finish()
        feed = self._parts.feed
        with self._parts.watch.stage("freezing for the checkpoint", step=step):
            await feed.freeze()
        try:
            pending = feed.write if feed.is_ahead else None
            with self._parts.watch.stage("checkpoint", step=step, is_blocking=True):
                state = snapshot(self._parts, step)  # of the moment that `pending` is of
                self._saver.begin(step, with_result(state, self._result), pending, is_last=is_last)
        finally:
            feed.thaw()
        if is_last:
            await self.finish(is_last=True)

    async def rescue(self, step: int, state: dict[str, Any]) -> None:
        """Keep the last committed step of a run that is failing, as far as that is possible."""
        try:
            await self.finish()
            if step and not self._saver.is_saved(step):
                with self._parts.watch.stage("rescue of the last step", step=step, is_blocking=True):
                    self._saver.begin(step, with_result(state, self._result))
                await self.finish()
        except RollError as error:  # the error of the step is the one to raise
            logger.warning("step %d could not be saved: %s", step, error)

    async def look_after(self) -> None:
        """Complete what has been written meanwhile."""
        if self._saver.is_busy:
            self._announce(await self._parts.apart(self._saver.poll))

    async def finish(self, *, is_last: bool = False) -> None:
        """Wait for the checkpoint under way, if there is one."""
        if self._saver.is_busy:
            with self._parts.watch.stage("end of the checkpoint", step=self._result.steps, is_blocking=True):
                self._announce(await self._parts.apart(lambda: self._saver.finish(is_last=is_last)))

    def abandon(self) -> None:
        """The run ends at once: leave nothing half-written."""
        self._saver.abandon()

    def close(self) -> None:
        """The run ends: complete what is under way."""
        self._saver.close()

    def _announce(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None:
            self._parts.watch.update(saved_step=checkpoint.step)
            self._parts.observers.notify("roll_on_checkpoint_saved", step=checkpoint.step, folder=checkpoint.folder)
