"""Verdicts over a table of answers, outside any run: streamed in order, with a summary, and a second opinion."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roll_core.scoring import VerifierPool
from roll_core.types import Prompt, Status, Verdict

FIRST, SECOND = "first", "second"
"""Keys of the pool: the verifier, and the one it is compared with."""
_WINDOW = 256
"""Rows under way at once; verdicts of later rows wait in memory for an earlier one."""
_SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """One row to judge."""

    index: int
    response: str
    reference: Any
    prompt: Prompt | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the verifier's `verify`."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What was found about one row."""

    answer: Answer
    verdict: Verdict
    second: Verdict | None = None

    @property
    def is_disputed(self) -> bool:
        """Whether both verifiers scored the answer and only one of them accepts it."""
        if self.second is None or not (self.verdict.status.is_scored and self.second.status.is_scored):
            return False
        return (self.verdict.status is Status.CORRECT) is not (self.second.status is Status.CORRECT)


class Summary:
    """Counts over a stream of opinions; keeps the slowest and the disputed ones."""

    def __init__(self) -> None:
        self.total = 0
        self.statuses: Counter[str] = Counter()
        self.details: Counter[tuple[str, str]] = Counter()
        self.score = 0.0
        """Sum of the scores of scored answers."""
        self.seconds = 0.0
        """Seconds spent in the verifier."""
        self.slowest: list[Opinion] = []
        self.disputed: list[Opinion] = []
        self.compared = 0
        """Answers that both verifiers scored."""

    @property
    def scored(self) -> int:
        """Answers with a score."""
        return sum(self.statuses[status] for status in Status if status.is_scored)

    @property
    def mean_score(self) -> float | None:
        """Mean over the answers with a score; None without any."""
        return self.score / self.scored if self.scored else None

    def add(self, opinion: Opinion) -> None:
        """Count one opinion."""
        verdict = opinion.verdict
        self.total += 1
        self.statuses[verdict.status] += 1
        self.details[verdict.status.value, verdict.detail.partition(" ")[0]] += 1
        self.score += verdict.score or 0.0
        self.seconds += verdict.seconds
        self.slowest = sorted([*self.slowest, opinion], key=lambda o: -o.verdict.seconds)[:_SLOWEST]
        if opinion.second is not None:
            self.compared += verdict.status.is_scored and opinion.second.status.is_scored
            if opinion.is_disputed:
                self.disputed.append(opinion)


async def judge_answers(pool: VerifierPool, answers: Iterable[Answer], *, has_second: bool) -> AsyncIterator[Opinion]:
    """Judge answers concurrently and yield the opinions in the order of the answers.

    Args:
        pool: open, with the verifier under the key `FIRST` and, with `has_second`, another under `SECOND`.
        answers: read as they are needed.
        has_second: ask the second verifier too.
    """
    under_way: deque[asyncio.Task[Opinion]] = deque()
    try:
        for answer in answers:
            under_way.append(asyncio.create_task(_judge(pool, answer, has_second)))
            if len(under_way) >= _WINDOW or under_way[0].done():
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()


async def _judge(pool: VerifierPool, answer: Answer, has_second: bool) -> Opinion:
    keys = (FIRST, SECOND) if has_second else (FIRST,)
    verdicts = await asyncio.gather(
        *(pool.verify(key, answer.response, answer.reference, prompt=answer.prompt, **answer.options) for key in keys)
    )
    return Opinion(answer, *verdicts)
