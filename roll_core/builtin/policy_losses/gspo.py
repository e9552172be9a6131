"""Sequence-level ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from roll_core.numerics import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs

_LOG_RATIO_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Gspo:
    """Clipped ratio of whole sequences.

    s_i = exp(mean_t log r_t) over the segment's counted tokens; each token carries s_{i,t} = sg[s_i] pi_t / sg[pi_t],
    and l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high)). Under seq-mean-token-mean and advantages that are equal
    within a sequence this is the paper's objective, value and gradient; under token-mean long sequences weigh more,
    under seq-mean-token-sum and dr_grpo each sequence counts L_i-fold (LUSPO, arXiv:2602.05261).

    Source: Zheng et al. 2025, arXiv:2507.18071, equations 5 and 11 (GSPO-token).
    Deviates: log s is clamped to [-20, 10].
    """

    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4
    """The sequence ratio's room below 1."""
    clip_high: Annotated[float, Field(ge=0)] = 4e-4
    """The sequence ratio's room above 1."""

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs, inputs.old_logprobs).detach()
        log_s = inputs.per_token(inputs.segment_mean(log_r)).clamp(max=_LOG_RATIO_MAX)
        ratio = torch.exp(log_s) * torch.exp(inputs.logprobs - inputs.logprobs.detach())
        advantages = inputs.advantages
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        bites = ((advantages > 0) & (ratio > 1 + self.clip_high)) | ((advantages < 0) & (ratio < 1 - self.clip_low))
        inputs.metric("policy/clip_fraction", bites)
        inputs.metric("policy/ratio", ratio)
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return torch.maximum(-advantages * ratio, -advantages * clipped)
