"""Clipped ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from roll_core.errors import ConfigError
from roll_core.numerics import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs


@dataclass(frozen=True, slots=True)
class PpoClip:
    """Clipped ratio, with asymmetric, dual and two-sided clips.

    l = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), r = pi / pi_old. With `dual_clip` c, l = min(l, -c A)
    where A < 0. With `delta`, the unclipped r is min(r, delta).

    Source: Schulman et al. 2017, arXiv:1707.06347; clip_high: DAPO, arXiv:2503.14476 (0.2 and 0.28); dual_clip:
    arXiv:1912.09729; delta: INTELLECT-2, arXiv:2505.07291.
    Deviates: none.
    """

    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio's room below 1."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """The ratio's room above 1."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bound on the ratio where the advantage is negative, usually 3; null leaves it unbounded."""
    delta: Annotated[float, Field(gt=1)] | None = None
    """Bound on the unclipped ratio, above 1 + clip_high; null leaves it unbounded."""

    def __post_init__(self) -> None:
        if self.delta is not None and self.delta <= 1 + self.clip_high:
            raise ConfigError(f"ppo_clip: delta={self.delta} must be above 1 + clip_high = {1 + self.clip_high:g}")

    def requirements(self) -> frozenset[str]:
        """The trainer's log-probs before the update."""
        return frozenset({"old_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        log_r = log_ratio(inputs.logprobs, inputs.old_logprobs)
        ratio = torch.exp(log_r)
        advantages = inputs.advantages
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        unclipped = ratio if self.delta is None else ratio.clamp(max=self.delta)
        loss = torch.maximum(-advantages * unclipped, -advantages * clipped)
        if self.dual_clip is not None:
            loss = torch.where(advantages < 0, torch.minimum(loss, -self.dual_clip * advantages), loss)
        bites = ((advantages > 0) & (ratio > 1 + self.clip_high)) | ((advantages < 0) & (ratio < 1 - self.clip_low))
        inputs.metric("policy/clip_fraction", bites)
        inputs.metric("policy/ratio", ratio)
        inputs.metric("policy/approx_kl", torch.expm1(log_r) - log_r)
        return loss
