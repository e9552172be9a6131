"""Tapered off-policy REINFORCE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from roll_core.numerics import LOG_RATIO_LIMIT, log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs


@dataclass(frozen=True, slots=True)
class Topr:
    """Positives at full weight, negatives weighted by their truncated sequence ratio.

    l = -A log pi where A >= 0; l = -sg[clip(rho, 0, cap)] A log pi where A < 0, rho = prod_t pi / pi_old over the
    segment's counted tokens. A negative that the policy has already left is left alone.

    Source: Le Roux et al. 2025, arXiv:2503.14286.
    Deviates: the sign is the advantage's, token by token, where the paper has a sequence reward of either sign; rho is
    taken against the trainer's policy before the update (the sampler's gap is `correction`'s business).
    """

    cap: Annotated[float, Field(gt=0)] = 1.0
    """Upper bound of a negative's weight."""

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs)
        log_rho = inputs.segment_sum(log_r).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        rho = inputs.per_token(torch.exp(log_rho))
        negative = inputs.advantages < 0
        weight = torch.where(negative, rho.clamp(max=self.cap), torch.ones_like(rho))
        inputs.metric("policy/clip_fraction", negative & (rho > self.cap))
        inputs.metric("policy/ratio", torch.exp(log_r))
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return -weight * inputs.advantages * inputs.logprobs
