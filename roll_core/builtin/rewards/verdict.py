"""The verifier's score as a reward."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.types import RolloutGroup


@dataclass(frozen=True, slots=True)
class VerdictReward:
    """The raw score of the verdict; None where there is none."""

    def __call__(self, group: RolloutGroup) -> list[float | None]:
        """One value per rollout, in [0, 1]."""
        return [rollout.score for rollout in group.rollouts]
