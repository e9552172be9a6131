"""Dynamic sampling: drop groups that carry no signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from roll_core.errors import ConfigError
from roll_core.types import RolloutGroup

TOO_FEW = "too_few_scored"


@dataclass(frozen=True, slots=True)
class InformativeGroups:
    """Drop a group whose raw scores are all equal: its advantages would be zero.

    Reasons: "too_few_scored" (fewer than two), "all_correct", "all_wrong", "all_equal".

    Args:
        tolerance: scores that differ by no more count as equal.

    Raises:
        ConfigError: the tolerance is not in [0, 1).

    Source: Yu et al. 2025, arXiv:2503.14476 (DAPO, dynamic sampling).
    Deviates: works on graded scores too, and on the raw score instead of the shaped reward.
    """

    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-6

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ConfigError(f"filter informative_groups: tolerance must be in [0, 1), got {self.tolerance}")

    def reject(self, group: RolloutGroup) -> str | None:
        """Return why the finished group is dropped, or None."""
        return self.hopeless([rollout.score for rollout in group.rollouts], 0)

    def hopeless(self, scores: Sequence[float | None], missing: int) -> str | None:
        """Return why no outcome of the `missing` rollouts could spread the scores, or None.

        A missing rollout may take any score in [0, 1], so two of them always could.
        """
        known = [score for score in scores if score is not None]
        if len(known) + missing < 2:
            return TOO_FEW
        if missing >= 2:
            return None
        low, high = min(known), max(known)
        spread = high - low if missing == 0 else max(high - low, 1.0 - low, high)
        return self._name(low, high) if spread <= self.tolerance else None

    def _name(self, low: float, high: float) -> str:
        if low >= 1.0 - self.tolerance:
            return "all_correct"
        return "all_wrong" if high <= self.tolerance else "all_equal"
