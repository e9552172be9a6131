"""One group from ticket to judgement: all samples at once, each scored as it ends, then the filters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field

from roll_core.contracts import Filter, RolloutBackend
from roll_core.rollout.collected import StepRollouts
from roll_core.rollout.gate import Gate
from roll_core.rollout.single_turn import Decode, request_id, single_turn
from roll_core.rooms import Books, Scoring, SeedOf
from roll_core.types import Prompt, Rollout, RolloutGroup, SamplingParams, Ticket


@dataclass(slots=True)
class GroupRunner:
    """See the module's text.

    Args:
        backend: generates tokens.
        scoring: verdicts and rewards.
        books: the ledger.
        decode: token ids to text.
        filters: in written order; the first that rejects names the reason.
        sampling: sampling parameters by domain.
        group_size: samples per prompt (G).
        seed_of: seed of each sample.
        greedy: domains whose prompts also get a greedy answer.
        early_stop: stop a group's running samples once no outcome of theirs could get it through the filters.
    """

    backend: RolloutBackend
    scoring: Scoring
    books: Books
    decode: Decode
    filters: Sequence[Filter]
    sampling: Mapping[str, SamplingParams]
    group_size: int
    seed_of: SeedOf
    greedy: frozenset[str] = frozenset()
    early_stop: bool = False
    gate: Gate = field(init=False)
    """Halts and resumes all generation of groups."""
    _verdicts: set[asyncio.Task[None]] = field(default_factory=set)
    _open: int = 0
    _dropped: int = 0

    def __post_init__(self) -> None:
        self.gate = Gate(self.backend)

    def counts(self, finished: int) -> dict[str, int]:
        """How many groups are under way, finished and waiting (as the caller knows), dropped so far, and requests."""
        return {"open": self._open, "finished": finished, "dropped": self._dropped, "requests": self.gate.running}

    async def run(self, ticket: Ticket, prompt: Prompt, attempt: int | None = None) -> RolloutGroup:
        """Roll out and score the group of a ticket.

        Args:
            ticket: the draw.
            prompt: what is asked.
            attempt: goes on with this attempt, which a checkpoint interrupted; None begins a new one.
        """
        self._open += 1
        try:
            return await self._run(ticket, prompt, self.books.run(ticket.id) if attempt is None else attempt)
        finally:
            self._open -= 1

    async def _run(self, ticket: Ticket, prompt: Prompt, attempt: int) -> RolloutGroup:
        sampling = self.sampling[ticket.domain]
        group = RolloutGroup(ticket, prompt, [])

        async def sample(index: int, params: SamplingParams) -> Rollout:
            rollout = await single_turn(
                self.gate,
                self.decode,
                ticket=ticket,
                prompt=prompt,
                index=index,
                sampling=params,
                seed=self.seed_of(ticket, index, attempt),
                attempt=attempt,
            )
            if rollout.finish_reason != "abort":
                await self._tracked(self.scoring.score(rollout))
            return rollout

        async with asyncio.TaskGroup() as tasks:
            samples = [tasks.create_task(sample(i, sampling)) for i in range(self.group_size)]
            if self.early_stop:
                for task in samples:
                    task.add_done_callback(lambda _: self._stop_hopeless(ticket, attempt, samples))
            wants_greedy = ticket.domain in self.greedy
            greedy = tasks.create_task(sample(-1, sampling.greedy())) if wants_greedy else None
        group.rollouts = [task.result() for task in samples]
        group.greedy = greedy.result() if greedy is not None else None
        self.gate.forget(self._requests(ticket, attempt))
        self.scoring.compose(group)
        self.books.score(ticket.id, attempt)
        return group

    def judge(self, group: RolloutGroup, result: StepRollouts) -> None:
        """Admit or drop a finished group, in the books and in `result`."""
        reason = self._reject(group)
        if reason is None:
            self.books.admit(group.ticket.id)
            result.admitted.append(group)
        else:
            self.drop(group, reason, result)

    def drop(self, group: RolloutGroup, reason: str, result: StepRollouts) -> None:
        """Drop a finished group, in the books and in `result`."""
        self.books.drop(group.ticket.id, reason)
        result.dropped.append((group, reason))
        self._dropped += 1

    def give_up(self, ticket: Ticket, attempt: int) -> None:
        """End the generation of a group under way; its `run` returns what there is."""
        for name in self._requests(ticket, attempt):
            self.gate.abort(name)

    def await_verdicts_between_steps(self, is_wanted: bool) -> None:
        """Have the backend wait for verdicts between decode steps, so that early stops do not depend on the clock."""
        self.backend.set_barrier(self._await_verdicts if is_wanted and self.early_stop else None)

    def _requests(self, ticket: Ticket, attempt: int) -> list[str]:
        first = -1 if ticket.domain in self.greedy else 0
        return [request_id(ticket, index, attempt) for index in range(first, self.group_size)]

    def _reject(self, group: RolloutGroup) -> str | None:
        if any(r.finish_reason == "abort" for r in group.rollouts):
            return "stopped_early"
        if not group.scored:
            return "unscored"
        if group.ticket.domain in self.greedy and (group.greedy is None or not group.greedy.is_scored):
            return "greedy_unscored"
        return next((reason for f in self.filters if (reason := f.reject(group)) is not None), None)

    async def _tracked(self, verdict: Awaitable[None]) -> None:
        task = asyncio.ensure_future(verdict)
        self._verdicts.add(task)
        task.add_done_callback(self._verdicts.discard)
        await task

    async def _await_verdicts(self) -> None:
        await asyncio.sleep(0)
        while self._verdicts:
            await asyncio.wait(set(self._verdicts))
            await asyncio.sleep(0)

    def _stop_hopeless(self, ticket: Ticket, attempt: int, samples: Sequence[asyncio.Task[Rollout]]) -> None:
        finished = [t.result() for t in samples if t.done() and not t.cancelled() and t.exception() is None]
        missing = len(samples) - len(finished)
        if not missing or not any(_hopeless(f, [r.score for r in finished], missing) for f in self.filters):
            return
        for index, task in enumerate(samples):
            if not task.done():
                self.gate.abort(request_id(ticket, index, attempt))


def _hopeless(rule: Filter, scores: Sequence[float | None], missing: int) -> bool:
    ask = getattr(rule, "hopeless", None)
    return callable(ask) and ask(scores, missing) is not None
