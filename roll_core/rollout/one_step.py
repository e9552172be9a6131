"""One step ahead: the next batch is rolled out, with the weights of now, while this one is trained."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from roll_core.rollout.collected import StepRollouts
from roll_core.rollout.journal import Pending, read_pending, write_pending
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.rooms import Drawing


@dataclass(slots=True)
class OneStepScheduler:
    """Collects batch k + 1 during update k. Every token of a batch is of one version, one behind the trained one.

    As deterministic as the synchronous scheduler: weights change only when no rollout runs, and a batch that was
    collected ahead is kept in checkpoints.

    Args:
        inner: collects one batch.
        draw: prompts, to read back what a checkpoint kept.
        prompts: groups of a step.
    """

    inner: RolloutScheduler
    draw: Drawing
    prompts: int
    is_ahead: bool = True
    _next: asyncio.Task[StepRollouts] | None = None
    _kept: StepRollouts | None = field(default=None)

    async def collect(self, step: int, count: int) -> StepRollouts:
        """The batch of `step`: what was collected ahead, else collected now."""
        if self._kept is None:
            await self.settle()
        if self._kept is None:
            return await self.inner.collect(step, count)
        result, self._kept = self._kept, None
        return result

    def updating(self, step: int, *, is_last: bool) -> None:
        """The update of `step` begins: so do the rollouts of the next one."""
        if not is_last:
            self._next = asyncio.ensure_future(self.inner.collect(step + 1, self.prompts))

    async def settle(self) -> None:
        """Wait for the batch that is collected ahead."""
        if self._next is not None:
            task, self._next = self._next, None
            self._kept = await task

    def advance(self, version: int) -> None:
        """Rollouts begin with the next update."""

    async def freeze(self) -> None:
        """Wait for the batch that is collected ahead."""
        await self.settle()

    def thaw(self) -> None:
        """Nothing was halted."""

    def write(self, folder: Path) -> None:
        """Keep the batch that was collected ahead."""
        write_pending(folder, Pending(self._kept or StepRollouts()))

    def read(self, folder: Path | None) -> None:
        """Take up a batch that was collected ahead."""
        collected = StepRollouts() if folder is None else read_pending(folder, self.draw.prompt_of).collected
        self._kept = collected if collected.drawn else None
        self.inner.read(folder, {group.ticket.id for group in collected.admitted})

    def counts(self) -> dict[str, int]:
        """See `Feed.counts`."""
        counts = self.inner.counts()
        waiting = len(self._kept.admitted) if self._kept is not None else 0
        return counts | {"finished": counts["finished"] + waiting}

    async def close(self) -> None:
        """Give up what is collected ahead."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._next = None
