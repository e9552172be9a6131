"""Group-relative advantages, scaled by the spread of the rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from roll_core.numerics import spread
from roll_core.types import AdvantageInputs, Advantages, AnyArray


@dataclass(frozen=True, slots=True)
class Grpo:
    """Reward centred and scaled within its group.

    A_i = (R_i - mean_g) / (std_g + eps) on every sampled token; a group of one gives 0.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2; scale "batch": arXiv:2508.08221.
    Deviates: the paper names no eps. Implementations differ: ddof 1 with eps 1e-6 (verl), 1e-4 (TRL) or 1e-9
    (OpenRLHF), ddof 0 with eps 1e-6 (rLLM); verl gives a group of one its raw reward.
    """

    normalize_by_std: bool = True
    """Divide by the spread; false leaves centring only."""
    ddof: Literal[0, 1] = 1
    """1: sample standard deviation; 0: population standard deviation."""
    eps: Annotated[float, Field(ge=0)] = 1e-6
    """Added to the standard deviation."""
    scale: Literal["group", "batch"] = "group"
    """Spread of the rollout's group, or of all rollouts that share this estimator."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        centred = rewards - inputs.group_mean(rewards)
        if not self.normalize_by_std:
            return Advantages(inputs.broadcast(centred))
        divisor = self._spread(inputs, rewards, centred) + self.eps
        return Advantages(inputs.broadcast(np.divide(centred, divisor, out=np.zeros_like(centred), where=divisor > 0)))

    def _spread(self, inputs: AdvantageInputs, rewards: AnyArray, centred: AnyArray) -> AnyArray:
        if self.scale == "batch":
            return np.full(len(rewards), spread(rewards, ddof=self.ddof))
        freedom = np.maximum(inputs.group_size() - self.ddof, 1)
        return np.asarray(np.sqrt(inputs.group_sum(np.square(centred)) / freedom))
