"""Fills one step's batch: draws prompts, runs their rollouts at once, scores each as it ends, admits or drops groups.

The scheduler works in rounds. A round draws as many prompts as groups are missing and ends when every one of them is
scored and judged by the filters; admission goes by ticket, so nothing depends on who finished first. No decision
reads a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roll_core.errors import StarvationError
from roll_core.rollout.collected import StepRollouts, first_leaf, why_starved
from roll_core.rollout.groups import GroupRunner
from roll_core.rooms import Drawing
from roll_core.types import Prompt, RolloutGroup, Ticket


@dataclass(slots=True)
class RolloutScheduler:
    """Rolls out while nothing is trained; every token is of the newest weights. See the module's text.

    Args:
        groups: rolls out one group.
        draw: prompts.
        max_draws: largest number of prompts one step may draw.
    """

    groups: GroupRunner
    draw: Drawing
    max_draws: int
    is_ahead: bool = False
    """Whether rollouts go on while the policy is trained."""
    _lost: list[Ticket] = field(default_factory=list)
    _result: StepRollouts = field(default_factory=StepRollouts)

    async def collect(self, step: int, count: int) -> StepRollouts:
        """Run rounds until `count` groups are admitted or the data end; the last batch may be smaller, or empty.

        Raises:
            StarvationError: the draw budget was used up first.
        """
        result = self._result = StepRollouts()
        self.groups.await_verdicts_between_steps(True)
        try:
            while len(result.admitted) < count:
                missing = min(count - len(result.admitted), self.max_draws - result.drawn)
                again = [(ticket, self.draw.prompt_of(ticket)) for ticket in self._lost[: max(missing, 0)]]
                del self._lost[: len(again)]
                fresh = self.draw.draw(missing - len(again), step) if missing > len(again) else ()
                drawn = [*again, *fresh]
                if missing <= 0:
                    raise StarvationError(why_starved(result, count))
                if not drawn:
                    break
                self.groups.books.draw(ticket for ticket, _ in fresh)
                result.drawn += len(drawn)
                result.rounds += 1
                for group in await self._round(drawn):
                    self.groups.judge(group, result)
        finally:
            self._result = StepRollouts()
            self.groups.await_verdicts_between_steps(False)
        return result

    def updating(self, step: int, *, is_last: bool) -> None:
        """Rollouts of the next step wait for the end of this one."""

    async def settle(self) -> None:
        """Nothing runs between two steps."""

    def advance(self, version: int) -> None:
        """Nothing runs ahead."""

    async def freeze(self) -> None:
        """Nothing runs between two steps."""

    def thaw(self) -> None:
        """Nothing was halted."""

    def write(self, folder: Path) -> None:
        """Nothing is pending between two steps."""

    def read(self, folder: Path | None, kept: Collection[int] = ()) -> None:
        """Open tickets of another mode's checkpoint, but those `kept`, are rolled out again."""
        self._lost = list(self.groups.books.requeue(kept))

    def counts(self) -> dict[str, int]:
        """See `Feed.counts`."""
        return self.groups.counts(len(self._result.admitted))

    async def close(self) -> None:
        """Nothing runs."""

    async def _round(self, drawn: Sequence[tuple[Ticket, Prompt]]) -> list[RolloutGroup]:
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self.groups.run(ticket, prompt)) for ticket, prompt in drawn]
        except BaseExceptionGroup as failures:
            raise first_leaf(failures) from failures
        return sorted((task.result() for task in running), key=lambda g: g.ticket.id)
