"""Rollouts that never wait for training: groups start up to a bound of staleness and are trained as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from roll_core.errors import StarvationError
from roll_core.rollout.collected import STALE, StepRollouts, first_leaf, why_starved
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.journal import Pending, UnderWay, read_pending, write_pending
from roll_core.rooms import Drawing
from roll_core.types import Prompt, RolloutGroup, Ticket


class AheadScheduler:
    """Keeps rollouts going while the policy is trained; weights change under them.

    A group that was started under version v is meant to be trained in step v + `max_staleness` at the latest. Neither
    of these rules looks at lengths:

    * **Start late enough.** With B groups a step, at most (version + 1 + max_staleness) * B groups are started in all
      that are not dropped. Hence at step s at most B open groups are at the bound.
    * **Oldest first.** A step takes the oldest groups that are finished.

    `on_stale` says what happens to a group that is at the bound and not finished. `wait`: the step waits for it, so
    nothing is ever too old or thrown away. `correct`: the step does not wait; the group is trained when it has ended,
    and counted. `drop`: the step does not wait; the group is given up when the next weights come, and another one
    started. With the first two every group is trained, however long its answers; with `drop` long ones get rarer.

    A rollout that is interrupted by new weights goes on with its tokens; each token keeps the version and the log-prob
    it was sampled with.

    Args:
        groups: rolls out one group.
        draw: prompts.
        prompts: groups of a step (B).
        steps: steps of the run; no group is started that no step could train.
        max_staleness: how many versions a group may be behind the one it is trained from.
        max_draws: a step ends with an error after the filters have dropped so many groups.
        on_stale: see above.
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
        on_stale: Literal["wait", "drop", "correct"] = "wait",
    ) -> None:
        self._groups, self._books, self._draw = groups, groups.books, draw
        self._prompts, self._steps, self._max_staleness = prompts, steps, max_staleness
        self._max_draws, self._on_stale = max_draws, on_stale
        self._version = 0
        self._taken = 0
        self._ready = StepRollouts()
        self._versions: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._under_way: dict[int, UnderWay] = {}
        self._to_resume: list[UnderWay] = []
        self._lost: list[Ticket] = []
        self._given_up: set[int] = set()
        self._changed = asyncio.Event()
        self._data_ended = False

    @property
    def open(self) -> int:
        """Groups that are started and not yet handed to training."""
        return len(self._tasks) + len(self._ready.admitted)

    async def collect(self, step: int, count: int) -> StepRollouts:
        """The `count` oldest finished groups, once it need not wait for others; fewer when the data have ended.

        Raises:
            StarvationError: the filters drop group after group.
        """
        while not self._is_enough(step, count):
            self._changed.clear()
            await self._changed.wait()
            self._raise_failures()
            if sum(reason != STALE for _, reason in self._ready.dropped) >= self._max_draws:
                raise StarvationError(why_starved(self._ready, count))
        oldest = sorted(self._ready.admitted, key=lambda g: (self._versions[g.ticket.id], g.ticket.id))
        taken, later = oldest[:count], oldest[count:]
        versions = [self._versions.pop(group.ticket.id) for group in taken]
        stale = sum(version < step - self._max_staleness for version in versions)
        result = StepRollouts(taken, self._ready.dropped, self._ready.drawn, 1, stale)
        self._ready = StepRollouts(later)
        self._taken += len(taken)
        return result

    def updating(self, step: int, *, is_last: bool) -> None:
        """Rollouts go on."""

    async def settle(self) -> None:
        """Rollouts go on while weights change."""

    def advance(self, version: int) -> None:
        """Weights of `version` are in use: give up what is too old for them, start what may be started now."""
        if self._taken == 0:
            self._taken = version * self._prompts
        self._version = version
        for one in self._to_resume:
            self._start(one.ticket, self._draw.prompt_of(one.ticket), one)
        self._to_resume.clear()
        if self._on_stale == "drop":
            self._give_up_stale(version - self._max_staleness)
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

    def counts(self) -> dict[str, int]:
        """See `Feed.counts`."""
        return self._groups.counts(len(self._ready.admitted))

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
        is_waited_for = self._on_stale == "wait" and any(one.version <= bound for one in self._under_way.values())
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
        if group.ticket.id in self._given_up:
            self._given_up.discard(group.ticket.id)
            self._drop_stale(group)
            return
        before = len(self._ready.dropped)
        self._groups.judge(group, self._ready)
        if len(self._ready.dropped) > before:
            del self._versions[group.ticket.id]

    def _give_up_stale(self, bound: int) -> None:
        """Drop groups that were started before version `bound`; those under way are dropped as soon as they end."""
        kept = []
        for group in self._ready.admitted:
            if self._versions[group.ticket.id] < bound:
                self._drop_stale(group)
            else:
                kept.append(group)
        self._ready.admitted = kept
        for one in self._under_way.values():
            if one.version < bound:
                self._given_up.add(one.ticket.id)
                self._groups.give_up(one.ticket, one.attempt)

    def _drop_stale(self, group: RolloutGroup) -> None:
        self._groups.drop(group, STALE, self._ready)
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
