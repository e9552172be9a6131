"""Maximum-likelihood RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class MaxRl:
    """Reward centred and divided by the group mean: the rarer success is, the more it counts.

    A_i = (R_i - mean_g) / (mean_g + eps), 0 where mean_g <= 0; a group of one gives 0.

    Source: arXiv:2602.02710; prime-rl `algo/max_rl.py`.
    Deviates: none with eps 0; SkyRL adds an eps.
    """

    eps: Annotated[float, Field(ge=0)] = 0.0
    """Added to the mean."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        mean = inputs.group_mean(rewards)
        scaled = np.divide(rewards - mean, mean + self.eps, out=np.zeros_like(rewards), where=mean > 0)
        return Advantages(inputs.broadcast(scaled))
