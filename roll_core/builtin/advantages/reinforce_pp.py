"""REINFORCE++: token-level returns, whitened over the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from roll_core.numerics import discounted_returns, whiten_array
from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class ReinforcePP:
    """Discounted return whitened over the batch.

    G_t = r_t + gamma G_{t+1}, r_t = -kl_coef kl_t, plus R at the last sampled token; A = (G - mean) / sqrt(var + eps)
    over all sampled tokens of the rollouts that share this estimator. The KL belongs into the reward
    (`kl: {where: reward}`).

    Source: Hu et al. 2025, arXiv:2501.03262.
    Deviates: ddof 1 and eps 1e-8 as verl and SkyRL have it; OpenRLHF uses ddof 0 and a floor in place of eps.
    """

    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount per step."""
    gap: Literal["carry", "decay"] = "carry"
    """At tokens that were not sampled, between sampled ones: carry the return on (verl) or discount (OpenRLHF)."""
    ddof: Literal[0, 1] = 1
    """1: sample variance; 0: population variance."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    """Added to the variance."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        returns = discounted_returns(inputs, gamma=self.gamma, gap=self.gap)
        return Advantages(whiten_array(returns, inputs.response_mask, ddof=self.ddof, eps=self.eps))
