"""Rollouts that never wait for training: groups start up to a bound of staleness and are trained as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from roll_core.errors import StarvationError
from roll_core.rollout.collected import StepRollouts, first_leaf, why_starved
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.journal import Pending, UnderWay, read_pending, write_pending
from roll_core.rooms import Drawing
from roll_core.types import Prompt, RolloutGroup, Ticket


class AheadScheduler:
    """Keeps rollouts going while the policy is trained; weights change under them.

    A group that was started under version v is trained in step v + `max_staleness` at the latest. Two rules see to it,
    and neither looks at lengths, so that long answers are as likely to be trained as short ones:

    * **Start late enough.** With B groups a step, at most (version + 1 + max_staleness) * B groups are started in all
      that are not dropped by a filter. Hence at step s at most B open groups are at the bound.
    * **Wait for those at the bound.** A step takes the oldest groups first, and waits for every group that would be too
      old for the next one.

    So nothing is thrown away for its age. A rollout that is interrupted by new weights goes on with its tokens; each
    token keeps the version and the log-prob it was sampled with.

    Args:
        groups: rolls out one group.
        draw: prompts.
        prompts: groups of a step (B).
        steps: steps of the run; no group is started that no step could train.
        max_staleness: how many versions a group may be behind the one it is trained from.
        max_draws: a step ends with an error after so many dropped groups.
    """

    is_ahead = True

    def __init__(
        self,
        groups: GroupRunner,
        draw: Drawing,
        *,
        prompts: int,
        steps: int,
        max_staleness: int,
        max_draws: int,
    ) -> None:
        self._groups, self._books, self._draw = groups, groups.books, draw
        self._prompts, self._steps, self._max_staleness = prompts, steps, max_staleness
        self._max_draws = max_draws
        self._version = 0
        self._taken = 0
        self._ready = StepRollouts()
        self._versions: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._under_way: dict[int, UnderWay] = {}
        self._to_resume: list[UnderWay] = []
        self._lost: list[Ticket] = []
        self._changed = asyncio.Event()
        self._data_ended = False

    @property
    def open(self) -> int:
        """Groups that are started and not yet handed to training."""
        return len(self._tasks) + len(self._ready.admitted)

    async def collect(self, step: int, count: int) -> StepRollouts:
        """The `count` oldest groups, once nothing that is at the bound is missing; fewer when the data have ended.

        Raises:
            StarvationError: the filters drop group after group.
        """
        while not self._is_enough(step, count):
            self._changed.clear()
            await self._changed.wait()
            self._raise_failures()
            if len(self._ready.dropped) >= self._max_draws:
                raise StarvationError(why_starved(self._ready, count))
        oldest = sorted(self._ready.admitted, key=lambda g: (self._versions[g.ticket.id], g.ticket.id))
        taken, later = oldest[:count], oldest[count:]
        result = StepRollouts(taken, self._ready.dropped, self._ready.drawn, 1)
        self._ready = StepRollouts(later)
        self._taken += len(taken)
        for group in taken:
            del self._versions[group.ticket.id]
        return result

    def updating(self, step: int, *, is_last: bool) -> None:
        """Rollouts go on."""

    async def settle(self) -> None:
        """Rollouts go on while weights change."""

    def advance(self, version: int) -> None:
        """Weights of `version` are in use: start what may be started now."""
        if self._taken == 0:
            self._taken = version * self._prompts
        self._version = version
        for one in self._to_resume:
            self._start(one.ticket, self._draw.prompt_of(one.ticket), one)
        self._to_resume.clear()
        self._fill()

    async def freeze(self) -> None:
        """Take every rollout back from the backend, its tokens kept."""
        await self._groups.gate.close()

    def thaw(self) -> None:
        """Let rollouts go on."""
        self._groups.gate.open()

    def write(self, folder: Path) -> None:
        """Keep finished groups, and the tokens of those under way."""
        pending = Pending(self._ready, self._versions, list(self._under_way.values()), dict(self._groups.gate.made))
        write_pending(folder, pending)

    def read(self, folder: Path | None) -> None:
        """Take up what a checkpoint kept; open tickets that it did not keep are rolled out again."""
        if folder is not None:
            pending = read_pending(folder, self._draw.prompt_of)
            self._ready, self._versions = pending.collected, pending.versions
            self._to_resume = pending.under_way
            self._groups.gate.restore(pending.made)
        kept = {group.ticket.id for group in self._ready.admitted} | {one.ticket.id for one in self._to_resume}
        self._lost = list(self._books.requeue(kept))

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_enough(self, step: int, count: int) -> bool:
        """Whether the batch of `step` can be taken."""
        if not self._tasks:
            return True
        bound = step - self._max_staleness
        is_waited_for = any(one.version <= bound for one in self._under_way.values())
        return not is_waited_for and len(self._ready.admitted) >= count

    def _fill(self) -> None:
        """Start groups up to the bound."""
        limit = min(self._version + 1 + self._max_staleness, self._steps) * self._prompts - self._taken
        while self.open < limit and not self._data_ended:
            if self._lost:
                ticket = self._lost.pop(0)
                self._start(ticket, self._draw.prompt_of(ticket))
                continue
            drawn = self._draw.draw(limit - self.open, self._version)
            self._data_ended = not drawn
            self._books.draw(ticket for ticket, _ in drawn)
            self._ready.drawn += len(drawn)
            for ticket, prompt in drawn:
                self._start(ticket, prompt)

    def _start(self, ticket: Ticket, prompt: Prompt, begun: UnderWay | None = None) -> None:
        begun = begun or UnderWay(ticket, self._books.run(ticket.id), self._version)
        self._under_way[ticket.id] = begun
        self._versions[ticket.id] = begun.version
        task = asyncio.ensure_future(self._run(begun, prompt))
        self._tasks[ticket.id] = task
        task.add_done_callback(lambda _: self._changed.set())

    async def _run(self, begun: UnderWay, prompt: Prompt) -> None:
        ticket = begun.ticket
        group = await self._groups.run(ticket, prompt, begun.attempt)
        self._judge(group)
        del self._tasks[ticket.id], self._under_way[ticket.id]
        self._fill()

    def _judge(self, group: RolloutGroup) -> None:
        before = len(self._ready.dropped)
        self._groups.judge(group, self._ready)
        if len(self._ready.dropped) > before:
            del self._versions[group.ticket.id]

    def _raise_failures(self) -> None:
        """Raise what a rollout failed with (its task stays, since it did not end)."""
        failed: Sequence[asyncio.Task[None]] = [task for task in self._tasks.values() if task.done()]
        for task in failed:
            error = task.exception()
            if isinstance(error, BaseExceptionGroup):
                raise first_leaf(error) from error
            if error is not None:
                raise error
