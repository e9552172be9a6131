"""On-policy RL with the optimal reward baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class Opo:
    """Reward against the group's length-weighted mean.

    A_i = R_i - b, b = sum_i L_i R_i / sum_i L_i, L_i the number of sampled tokens; a group of one gives 0.

    Source: Hao et al. 2025, arXiv:2505.23585.
    Deviates: none.
    """

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        lengths = inputs.lengths.astype(np.float64)
        baseline = inputs.group_sum(lengths * rewards) / np.maximum(inputs.group_sum(lengths), 1)
        return Advantages(inputs.broadcast(rewards - baseline))
