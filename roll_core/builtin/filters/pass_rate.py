"""Dynamic sampling: keep groups of a wanted difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from roll_core.errors import ConfigError
from roll_core.types import RolloutGroup

Share = Annotated[float, Field(ge=0, le=1)]
TOO_FEW = "too_few_scored"
_SLACK = 1e-9  # a mean of thirds is not refused for its last bit


@dataclass(frozen=True, slots=True)
class PassRate:
    """Keep a group whose mean raw score lies in [low, high].

    Reasons: "too_few_scored" (fewer than two), "too_hard" (below), "too_easy" (above).

    Args:
        low: smallest mean score that is kept.
        high: largest mean score that is kept.

    Raises:
        ConfigError: not 0 <= low <= high <= 1.

    Source: Cui et al. 2025, arXiv:2502.01456 (PRIME, online prompt filtering).
    Deviates: none.
    """

    low: Share = 0.0
    high: Share = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise ConfigError(f"filter pass_rate: need 0 <= low <= high <= 1, got low={self.low}, high={self.high}")

    def reject(self, group: RolloutGroup) -> str | None:
        """Return why the finished group is dropped, or None."""
        return self.hopeless([rollout.score for rollout in group.rollouts], 0)

    def hopeless(self, scores: Sequence[float | None], missing: int) -> str | None:
        """Return why no outcome of the `missing` rollouts could bring the mean into the band, or None.

        A missing rollout may take any score in [0, 1], or stay without one.
        """
        known = [score for score in scores if score is not None]
        if len(known) + missing < 2:
            return TOO_FEW
        if missing and not known:
            return None
        least = sum(known) / (len(known) + missing)
        most = (sum(known) + missing) / (len(known) + missing)
        if most < self.low - _SLACK:
            return "too_hard"
        return "too_easy" if least > self.high + _SLACK else None
