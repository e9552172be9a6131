"""Clipped importance weights that keep every token's gradient."""

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
class Cispo:
    """Clipped, detached importance weight on log pi.

    l = -sg[clip(r, 1 - clip_low, 1 + clip_high)] A log pi, r = pi / pi_old. Clipping bounds a token's weight but never
    takes its gradient away.

    Source: MiniMax-M1, arXiv:2506.13585, equation 5.
    Deviates: none with `clip_low: null` (one-sided). Bounds are distances from 1, as verl, slime and NeMo-RL have
    them; TRL's absolute upper bound of 5 (ScaleRL, arXiv:2510.13786) is `clip_high: 4`, the default.
    """

    clip_low: Annotated[float, Field(ge=0, le=1)] | None = None
    """The weight's room below 1; null clips above only."""
    clip_high: Annotated[float, Field(ge=0)] = 4.0
    """The weight's room above 1."""

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs.detach(), inputs.old_logprobs)
        ratio = torch.exp(log_r)
        weight = ratio.clamp(0.0 if self.clip_low is None else 1 - self.clip_low, 1 + self.clip_high)
        inputs.metric("policy/clip_fraction", weight != ratio)
        inputs.metric("policy/ratio", ratio)
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return -weight * inputs.advantages * inputs.logprobs
