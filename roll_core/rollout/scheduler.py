"""Fills one step's batch: draws prompts, runs their rollouts at once, scores each as it ends, admits or drops groups.

The scheduler works in rounds. A round draws as many prompts as groups are missing and ends when every one of them is
scored and judged by the filters; admission goes by ticket, so nothing depends on who finished first. No decision
reads a clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field

from roll_core.contracts import Filter, RolloutBackend
from roll_core.errors import StarvationError
from roll_core.rollout.single_turn import Decode, request_id, single_turn
from roll_core.rooms import Books, DrawPrompts, Scoring, SeedOf
from roll_core.types import Prompt, Rollout, RolloutGroup, SamplingParams, Ticket


@dataclass(slots=True)
class StepRollouts:
    """Every group of a step: the admitted ones in ticket order, and the dropped ones with their reasons."""

    admitted: list[RolloutGroup] = field(default_factory=list)
    dropped: list[tuple[RolloutGroup, str]] = field(default_factory=list)
    drawn: int = 0
    rounds: int = 0

    @property
    def groups(self) -> list[RolloutGroup]:
        """Admitted and dropped groups in ticket order."""
        return sorted([*self.admitted, *(g for g, _ in self.dropped)], key=lambda g: g.ticket.id)


@dataclass(slots=True)
class RolloutScheduler:
    """See the module's text.

    Args:
        backend: generates tokens.
        scoring: verdicts and rewards.
        books: the ledger.
        draw: next prompts.
        decode: token ids to text.
        filters: in written order; the first that rejects names the reason.
        sampling: sampling parameters by domain.
        group_size: samples per prompt (G).
        seed_of: seed of each sample.
        max_draws: largest number of prompts one step may draw.
        greedy: domains whose prompts also get a greedy answer.
        early_stop: stop a group's running samples once no outcome of theirs could get it through the filters.
    """

    backend: RolloutBackend
    scoring: Scoring
    books: Books
    draw: DrawPrompts
    decode: Decode
    filters: Sequence[Filter]
    sampling: Mapping[str, SamplingParams]
    group_size: int
    seed_of: SeedOf
    max_draws: int
    greedy: frozenset[str] = frozenset()
    early_stop: bool = False
    _verdicts: set[asyncio.Task[None]] = field(default_factory=set)

    async def collect(self, step: int, count: int) -> StepRollouts:
        """Run rounds until `count` groups are admitted or the data end; the last batch may be smaller, or empty.

        Raises:
            StarvationError: the draw budget was used up first.
        """
        result = StepRollouts()
        self.backend.set_barrier(self._await_verdicts if self.early_stop else None)
        try:
            while len(result.admitted) < count:
                missing = min(count - len(result.admitted), self.max_draws - result.drawn)
                drawn = self.draw(missing, step) if missing > 0 else ()
                if missing <= 0:
                    raise StarvationError(_why_starved(result, count))
                if not drawn:
                    break
                self.books.draw(ticket for ticket, _ in drawn)
                result.drawn += len(drawn)
                result.rounds += 1
                for group in await self._round(drawn):
                    self._judge(group, result)
        finally:
            self.backend.set_barrier(None)
        return result

    async def _round(self, drawn: Sequence[tuple[Ticket, Prompt]]) -> list[RolloutGroup]:
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._group(ticket, prompt)) for ticket, prompt in drawn]
        except BaseExceptionGroup as failures:
            raise first_leaf(failures) from failures
        return sorted((task.result() for task in running), key=lambda g: g.ticket.id)

    async def _group(self, ticket: Ticket, prompt: Prompt) -> RolloutGroup:
        attempt = self.books.run(ticket.id)
        sampling = self.sampling[ticket.domain]
        group = RolloutGroup(ticket, prompt, [])

        async def sample(index: int, params: SamplingParams) -> Rollout:
            rollout = await single_turn(
                self.backend,
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
        self.scoring.compose(group)
        self.books.score(ticket.id, attempt)
        return group

    def _judge(self, group: RolloutGroup, result: StepRollouts) -> None:
        reason = self._reject(group)
        if reason is None:
            self.books.admit(group.ticket.id)
            result.admitted.append(group)
        else:
            self.books.drop(group.ticket.id, reason)
            result.dropped.append((group, reason))

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
                self.backend.abort(request_id(ticket, index, attempt))


def _why_starved(result: StepRollouts, count: int) -> str:
    """What was drawn, why it was dropped, how hard each domain is, what broke, and what to change."""
    reasons = Counter(reason for _, reason in result.dropped)
    why = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()) or "none dropped"
    rollouts: dict[str, list[Rollout]] = {}
    for group in result.groups:
        rollouts.setdefault(group.ticket.domain, []).extend(group.rollouts)
    domains = "; ".join(_domain_state(name, own) for name, own in sorted(rollouts.items()))
    return (
        f"drew {result.drawn} prompts for {count} groups, {len(result.admitted)} admitted ({why}): "
        f"{domains or 'no domain has prompts left'}. Change the data or the filters, raise batch.group_size, or raise "
        "rollout.max_draws."
    )


def _domain_state(name: str, rollouts: Sequence[Rollout]) -> str:
    scores = [r.score for r in rollouts if r.score is not None]
    failures = Counter(f"{r.verdict.detail}: {r.verdict.reason}" for r in rollouts if r.verdict and not r.is_scored)
    broken = ""
    if failures:
        cause, times = failures.most_common(1)[0]
        broken = f", {times} rollouts without a score because of '{cause}'"
    if not scores:
        return f"domain '{name}' has no scored rollout{broken}"
    rate = sum(scores) / len(scores)
    level = "is too hard" if rate < 0.05 else "is too easy" if rate > 0.95 else "has a usable pass rate"
    return f"domain '{name}' {level} (pass rate {rate:.2f}){broken}"


def first_leaf(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside nested exception groups: what the person running this wants to read."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _hopeless(rule: Filter, scores: Sequence[float | None], missing: int) -> bool:
    ask = getattr(rule, "hopeless", None)
    return callable(ask) and ask(scores, missing) is not None
