"""Plain returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from roll_core.numerics import discounted_returns
from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class Reinforce:
    """Discounted return, optionally against the batch mean.

    A_t = G_t - b, G_t = r_t + gamma G_{t+1} with the rollout's reward at its last sampled token; b = 0, or the mean
    of the rollouts' undiscounted total rewards. No group statistics: a group of one is as good as any.

    Source: Williams 1992, https://doi.org/10.1007/BF00992696.
    Deviates: the baseline, where asked for, is the mean of this batch (so it depends on the sample itself, with
    weight 1 / B) in place of a running mean.
    """

    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount per step."""
    gap: Literal["carry", "decay"] = "carry"
    """Whether tokens that were not sampled, between sampled ones, discount too ("decay")."""
    baseline: Literal["none", "batch"] = "none"
    """What is subtracted."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        returns = discounted_returns(inputs, gamma=self.gamma, gap=self.gap)
        if self.baseline == "none" or not len(inputs.rewards):
            return Advantages(returns)
        mean = float(inputs.totals().mean(dtype=np.float64))
        return Advantages(np.where(inputs.response_mask, returns - mean, 0.0).astype(np.float32))
