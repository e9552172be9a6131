"""A soft gate in place of the clip."""

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
class Sapo:
    """Soft sigmoid gate in place of the clip.

    l = -A (4 / tau) sigmoid(tau (r - 1)), r = pi / pi_old, tau = tau_positive where A > 0, else tau_negative. At r = 1
    the gradient is REINFORCE's and fades smoothly on both sides.

    Source: Gao et al. 2025, arXiv:2511.20347, equation 5 (averaged with seq-mean-token-mean there).
    Deviates: none.
    """

    tau_positive: Annotated[float, Field(gt=0)] = 1.0
    """Sharpness of the gate for positive advantages."""
    tau_negative: Annotated[float, Field(gt=0)] = 1.05
    """Sharpness of the gate for negative advantages."""

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = torch.exp(log_r)
        positive = inputs.advantages > 0
        tau = torch.where(
            positive, torch.full_like(ratio, self.tau_positive), torch.full_like(ratio, self.tau_negative)
        )
        gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
        inputs.metric("policy/gate", gate)
        inputs.metric("policy/ratio", ratio)
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return -inputs.advantages * gate
