"""PPO whose trust region is apart from the policy that sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field

from roll_core.numerics import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs


@dataclass(frozen=True, slots=True)
class DecoupledPpo:
    """Proximal policy apart from the behaviour policy.

    l = sg[w] max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = pi / pi_prox, w = pi_prox / mu; pi_prox is the
    trainer's policy before the update, mu the engine that sampled, however old. w corrects for the sampler already, so
    a `correction` beside it would count twice and is refused.

    Source: Hilton et al. 2021, arXiv:2110.00641, equation 3; AReaL, arXiv:2505.24298.
    Deviates: w is bounded by `cap`; AReaL drops tokens above its cap instead (`above_cap: drop`).
    """

    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio's room below 1."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """The ratio's room above 1."""
    cap: Annotated[float, Field(gt=0)] | None = 5.0
    """Bound on the behaviour weight w; null leaves it unbounded."""
    above_cap: Literal["truncate", "drop"] = "truncate"
    """What happens to tokens whose w is above the cap."""

    def requirements(self) -> frozenset[str]:
        """Log-probs of the trainer before the update, and of the sampler."""
        return frozenset({"old_logprobs", "rollout_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = torch.exp(log_r)
        weight = self._behaviour_weight(inputs)
        advantages = inputs.advantages
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        bites = ((advantages > 0) & (ratio > 1 + self.clip_high)) | ((advantages < 0) & (ratio < 1 - self.clip_low))
        inputs.metric("policy/clip_fraction", bites)
        inputs.metric("policy/ratio", ratio)
        inputs.metric("policy/behaviour_weight", weight)
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return weight * torch.maximum(-advantages * ratio, -advantages * clipped)

    def _behaviour_weight(self, inputs: LossInputs) -> Tensor:
        weight = torch.exp(log_ratio(inputs.old_logprobs, inputs.rollout_logprobs))
        if self.cap is None:
            return weight
        if self.above_cap == "drop":
            return torch.where(weight > self.cap, torch.zeros_like(weight), weight)
        return weight.clamp(max=self.cap)
