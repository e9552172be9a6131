"""Leave-one-out baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class Rloo:
    """Reward against the mean of the group's other samples.

    A_i = R_i - sum_{j != i} R_j / (G - 1) = G / (G - 1) (R_i - mean_g); a group of one gives 0.

    Source: Ahmadian et al. 2024, arXiv:2402.14740.
    Deviates: a group of one gives 0 (verl's `rloo` gives it the raw reward).
    """

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        size = inputs.group_size()
        factor = size / np.maximum(size - 1, 1)
        return Advantages(inputs.broadcast(factor * (rewards - inputs.group_mean(rewards))))
