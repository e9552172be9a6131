"""Geometric mean of clipped ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from roll_core.numerics import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs


@dataclass(frozen=True, slots=True)
class Gmpo:
    """Geometric mean over a sequence of ratios that are clipped per token in log space.

    d = log r; d_min = sgn(A) min(sgn(A) d, sgn(A) clip(d, -clip_low, clip_high)); l_i = -A exp(mean_t d_min) over the
    segment's counted tokens, the same value at each of its tokens. Under seq-mean-token-mean and advantages that are
    equal within a sequence this is the paper's objective; under token-mean long sequences weigh more, under
    seq-mean-token-sum and dr_grpo each sequence counts L_i-fold.

    Source: Zhao et al. 2025, arXiv:2507.20673, equation 4 and algorithm 1.
    Deviates: none.
    """

    clip_low: Annotated[float, Field(ge=0)] = 0.4
    """Room below 0 of a token's log-ratio."""
    clip_high: Annotated[float, Field(ge=0)] = 0.4
    """Room above 0 of a token's log-ratio."""

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs, inputs.old_logprobs)
        sign = torch.sign(inputs.advantages)
        clipped = log_r.clamp(-self.clip_low, self.clip_high)
        pessimistic = sign * torch.minimum(sign * log_r, sign * clipped)
        inputs.metric("policy/clip_fraction", (pessimistic != log_r) & (sign != 0))
        inputs.metric("policy/ratio", torch.exp(log_r))
        inputs.metric("policy/approx_kl", (torch.expm1(log_r) - log_r))
        return -inputs.advantages * inputs.per_token(torch.exp(inputs.segment_mean(pessimistic)))
