"""Torch functions of the train side. Shapes: [n] tokens of whole segments end to end; a mask's True means "counts"."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to [-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT] before they are exponentiated."""

KLEstimator = Literal["k1", "k2", "k3", "unbiased"]


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` where `mask` counts -> scalar. Values off the mask are ignored, NaN included."""
    return torch.where(mask, values, torch.zeros_like(values)).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask` counts -> scalar; 0 when nothing counts."""
    return masked_sum(values, mask) / mask.sum().clamp_min(1)


def whiten(values: Tensor, mask: Tensor, *, ddof: Literal[0, 1] = 1, eps: float = 1e-8) -> Tensor:
    """Centre and scale over the mask: (x - mean) / sqrt(var + eps); 0 off the mask.

    Args:
        values: [n].
        mask: [n].
        ddof: 1 divides the squared deviations by count - 1, 0 by count.
        eps: added to the variance.
    """
    centred = torch.where(mask, values - masked_mean(values, mask), torch.zeros_like(values))
    variance = centred.square().sum() / (mask.sum() - ddof).clamp_min(1)
    return centred * torch.rsqrt(variance + eps)


def log_ratio(logprobs: Tensor, other: Tensor) -> Tensor:
    """log(pi / other) per token, clamped so that its exponential is finite."""
    return (logprobs - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator) -> Tensor:
    """Estimate KL(pi || ref) per token from samples of pi, d = log(pi / ref) -> [n].

    | name | value | gradient on-policy, in expectation |
    |---|---|---|
    | k1 | d | zero: as a loss it regularises nothing |
    | k2 | d^2 / 2 | that of KL(pi, ref) |
    | k3 | exp(-d) - 1 + d | that of KL(ref, pi), the other direction |
    | unbiased | w * k3, w = pi / sg[pi] (value of k3) | that of KL(pi, ref) |

    Source: Schulman 2020, http://joschu.net/blog/kl-approx.html; "unbiased": DeepSeek-V3.2, arXiv:2512.02556.
    Deviates: d is clamped to [-20, 20]; the estimate itself is not clamped.
    """
    d = log_ratio(logprobs, ref_logprobs)
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    k3 = torch.expm1(-d) + d
    if estimator == "k3":
        return k3
    if estimator == "unbiased":
        return torch.exp(logprobs - logprobs.detach()) * k3
    raise ValueError(f"unknown KL estimator '{estimator}'; known: k1, k2, k3, unbiased")


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits) in nats: logsumexp(z) - sum(p z), [..., V] -> [...]."""
    return torch.logsumexp(logits, -1) - (torch.softmax(logits, -1) * logits).sum(-1)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float) -> Tensor:
    """Squared error of the critic per token -> [n]: 0.5 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2).

    Args:
        values: the critic's output, carrying the gradient.
        old_values: its output at the start of the step.
        returns: the target R.
        clip: the range c; 0 leaves the plain squared error.

    Source: the PPO reference code, https://github.com/openai/baselines (ppo2).
    Deviates: none.
    """
    plain = (values - returns).square()
    if clip == 0:
        return plain / 2
    clipped = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    return torch.maximum(plain, (clipped - returns).square()) / 2
