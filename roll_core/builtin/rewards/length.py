"""A penalty for length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from roll_core.errors import ConfigError
from roll_core.types import RolloutGroup


@dataclass(frozen=True, slots=True)
class LengthPenalty:
    """Minus the share of the length budget used: `-min(response_length / budget, 1)`.

    Args:
        budget: sampled tokens at which the penalty reaches its full size.

    Raises:
        ConfigError: the budget is below 1.
    """

    budget: Annotated[int, Field(ge=1)]

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ConfigError(f"reward length: budget must be at least 1 token, got {self.budget}")

    def __call__(self, group: RolloutGroup) -> list[float | None]:
        """One value per rollout, in [-1, 0]."""
        return [-min(rollout.response_length / self.budget, 1.0) for rollout in group.rollouts]
