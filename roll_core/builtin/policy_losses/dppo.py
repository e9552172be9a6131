"""A trust region on probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field

from roll_core.numerics import log_ratio

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs

_THRESHOLDS = {"tv": 0.15, "binary_kl": 0.05}


@dataclass(frozen=True, slots=True)
class Dppo:
    """Drops tokens whose probability has moved too far from the sampler's, in the direction the advantage pushes.

    l = -keep sg[min(rho, cap)] A log pi, rho = pi / mu, p = pi and q = mu (the engine that sampled). With divergence D,
    keep = not (A > 0, p > q, D > clip_high) and not (A < 0, p < q, D > clip_low), where D is |p - q| ("tv") or
    q log(q / p) + (1 - q) log((1 - q) / (1 - p)) ("binary_kl"). rho corrects for the sampler already, so a
    `correction` beside it would count twice and is refused.

    Source: Qi et al. 2026, arXiv:2602.04879; the truncated weight: verl `core_algos.py`.
    Deviates: prime-rl and SkyRL let rho carry the gradient untruncated; `cap: null` has the same gradient.
    """

    divergence: Literal["tv", "binary_kl"] = "tv"
    """Total variation, or KL of the two-way split "this token or another"."""
    clip_low: Annotated[float, Field(gt=0)] | None = None
    """Largest divergence downwards; null takes 0.15 for tv, 0.05 for binary_kl."""
    clip_high: Annotated[float, Field(gt=0)] | None = None
    """Largest divergence upwards; null takes 0.15 for tv, 0.05 for binary_kl."""
    cap: Annotated[float, Field(gt=0)] | None = 20.0
    """Upper bound of the importance weight; null leaves it unbounded."""

    def requirements(self) -> frozenset[str]:
        """The sampler's log-probs."""
        return frozenset({"rollout_logprobs"})

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        logprobs = inputs.logprobs.detach()
        log_rho = log_ratio(logprobs, inputs.rollout_logprobs)
        rho = torch.exp(log_rho)
        p, q = torch.exp(logprobs), torch.exp(inputs.rollout_logprobs)
        moved = self._divergence(p, q, log_rho)
        default = _THRESHOLDS[self.divergence]
        high = default if self.clip_high is None else self.clip_high
        low = default if self.clip_low is None else self.clip_low
        advantages = inputs.advantages
        dropped = ((advantages > 0) & (p > q) & (moved > high)) | ((advantages < 0) & (p < q) & (moved > low))
        weight = torch.where(dropped, torch.zeros_like(rho), rho if self.cap is None else rho.clamp(max=self.cap))
        inputs.metric("policy/clip_fraction", dropped)
        inputs.metric("policy/ratio", rho)
        inputs.metric("policy/approx_kl", torch.expm1(log_rho) - log_rho)
        return -weight * advantages * inputs.logprobs

    def _divergence(self, p: Tensor, q: Tensor, log_rho: Tensor) -> Tensor:
        if self.divergence == "tv":
            return (p - q).abs()
        tiny = torch.finfo(p.dtype).eps
        rest = torch.log((1 - q).clamp_min(tiny)) - torch.log((1 - p).clamp_min(tiny))
        return -q * log_rho + (1 - q) * rest
