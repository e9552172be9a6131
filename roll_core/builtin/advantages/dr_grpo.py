"""Group-relative advantages without division by the spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class DrGrpo:
    """Reward centred within its group.

    A_i = R_i - mean_g on every sampled token; a group of one gives 0. The constant loss normaliser that belongs to
    the method is `agg: dr_grpo`.

    Source: Liu et al. 2025, arXiv:2503.20783.
    Deviates: none.
    """

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        return Advantages(inputs.broadcast(rewards - inputs.group_mean(rewards)))
