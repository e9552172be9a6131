"""Greedy baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roll_core.errors import GroupError
from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class Remax:
    """Reward against that of the greedy answer to the same prompt.

    A_i = R_i - R(greedy) on every sampled token. The baseline is not the group's, so a group of one is as good as any.

    Source: Li et al. 2023, arXiv:2310.10505.
    Deviates: where the greedy answer could not be scored (NaN), its rollouts get 0.
    """

    def requirements(self) -> frozenset[str]:
        """Rewards of the greedy answers."""
        return frozenset({"greedy_rewards"})

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N].

        Raises:
            GroupError: there are no greedy rewards.
        """
        if inputs.greedy_rewards is None:
            raise GroupError("remax needs the reward of a greedy answer to each prompt (column 'greedy_rewards')")
        known = np.isfinite(inputs.greedy_rewards)
        return Advantages(inputs.broadcast(np.where(known, inputs.totals() - inputs.greedy_rewards, 0.0)))
