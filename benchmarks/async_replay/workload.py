"""What is rolled out: prompts without end, answers with a long tail, verdicts that take no time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from roll_core.types import Prompt, RewardRecord, Rollout, RolloutGroup, Ticket, Verdict

P99_OVER_MEDIAN = 10.0
"""Of published reasoning runs: Laminar (arXiv:2510.12633) gives a 99th percentile of ten times the median."""
SIGMA = math.log(P99_OVER_MEDIAN) / 2.3263
"""Of a log-normal distribution with that percentile (0.99)."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal response lengths; a request's seed decides its own."""

    median: float
    sigma: float
    longest: int
    """Longer ones are cut here (`max_new_tokens`)."""
    seed: int

    def of(self, request_seed: int) -> int:
        """Tokens of the request with this seed."""
        drawn = random.Random(f"{self.seed}/{request_seed}").lognormvariate(math.log(self.median), self.sigma)
        return max(1, min(round(drawn), self.longest))


def seed_of(ticket: Ticket, index: int, attempt: int) -> int:
    """Seed of a sample; no two are equal."""
    return ticket.id * 1000 + index


class Scoring:
    """Every answer is half right; verdicts take no time."""

    async def score(self, rollout: Rollout) -> None:
        """Give the verdict."""
        rollout.verdict = Verdict.incorrect(score=0.5)

    def compose(self, group: RolloutGroup) -> None:
        """Give the reward."""
        for rollout in group.scored:
            rollout.rewards = [RewardRecord("score", 0.5)]


class Prompts:
    """Numbered prompts without end."""

    def __init__(self) -> None:
        self.next = 0

    def draw(self, count: int, step: int) -> list[tuple[Ticket, Prompt]]:
        """The next prompts."""
        tickets = [Ticket(n, "d", str(n), n) for n in range(self.next, self.next + count)]
        self.next += count
        return [(ticket, self.prompt_of(ticket)) for ticket in tickets]

    def prompt_of(self, ticket: Ticket) -> Prompt:
        """The prompt of a ticket."""
        return Prompt(ticket.prompt_id, "d", text="x", token_ids=(1, 2, 3))

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """None."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """None."""
