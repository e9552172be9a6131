"""What the rooms of the engine ask of one another, so that siblings need not import each other.

Scheduler, evaluator and engine are handed objects that fit these protocols; `assembly` decides which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from roll_core.contracts import MiniBatch
from roll_core.types import Batch, Prompt, Rollout, RolloutGroup, Ticket

SeedOf = Callable[[Ticket, int, int], int]
"""(ticket, sample index, attempt) to the seed of that sample's random stream."""

PromptOf = Callable[[Ticket], Prompt]
"""The prompt of a ticket that was drawn before."""


class Stateful(Protocol):
    """Anything whose state goes into a checkpoint."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Drawing(Stateful, Protocol):
    """The draw of prompts."""

    def draw(self, count: int, step: int) -> Sequence[tuple[Ticket, Prompt]]: ...

    def prompt_of(self, ticket: Ticket) -> Prompt: ...

    def metrics(self) -> dict[str, float]: ...


class Scoring(Protocol):
    """Verdicts of rollouts as they end, rewards of groups when all of it has ended."""

    async def score(self, rollout: Rollout) -> None: ...

    def compose(self, group: RolloutGroup) -> None: ...


class ScoringReport(Protocol):
    """What is said about a step's scores."""

    def statistics(self, groups: Iterable[RolloutGroup]) -> dict[str, float]: ...

    def alarms(self, groups: Iterable[RolloutGroup]) -> list[str]: ...


class Workers(Protocol):
    """Processes that live as long as the run."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class MixReport(Protocol):
    """The closed books of a step."""

    def mix_metrics(self) -> dict[str, float]: ...


class Books(Stateful, Protocol):
    """The ledger over every ticket."""

    def draw(self, tickets: Iterable[Ticket]) -> None: ...

    def run(self, ticket_id: int) -> int: ...

    def requeue(self, kept: Collection[int]) -> Sequence[Ticket]: ...

    def score(self, ticket_id: int, attempt: int | None = None) -> None: ...

    def admit(self, ticket_id: int) -> None: ...

    def drop(self, ticket_id: int, reason: str) -> None: ...

    def train(self, ticket_id: int, tokens: int) -> None: ...

    def close(self, step: int, target: Mapping[str, float]) -> MixReport: ...


class CreditRoom(Stateful, Protocol):
    """Rewards to advantages and objectives."""

    def shape_rewards(self, groups: Iterable[RolloutGroup]) -> None: ...

    def advantages(self, batch: Batch) -> dict[str, float]: ...

    def mini_batches(self, batch: Batch, step: int) -> list[MiniBatch]: ...

    def observe(self, metrics: Mapping[str, float], batch: Batch) -> None: ...


class Observers(Protocol):
    """Plugins that implement observing hooks."""

    def notify(self, hook: str, **kwargs: Any) -> None: ...
