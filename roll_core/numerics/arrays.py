"""Numpy functions of the driver side: weights that make sums out of means, shaping, mismatch, the KL controller."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from roll_core.types import AnyArray, BoolArray, FloatArray, IndexArray

_LIMIT = 20.0
_ADAPTIVE_CLIP = 0.2

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]
Correction = Literal["none", "token_tis", "token_mask", "seq_tis", "seq_mask", "geo_mask"]


def aggregation_weights(
    mode: Aggregation,
    loss_mask: BoolArray,
    offsets: IndexArray,
    segments: BoolArray | None = None,
    agg_length: int | None = None,
) -> FloatArray:
    """Weights w such that `sum(w * loss)` is the aggregate over a whole mini-batch -> [N] float32, 0 off the mask.

    With N counted tokens, L_i of them in sequence i and B sequences that have any:

    * token-mean: 1 / N
    * seq-mean-token-mean: 1 / (L_i B)
    * seq-mean-token-sum: 1 / B
    * dr_grpo: 1 / (B agg_length), `agg_length` a constant of the run

    A sequence is a segment. Sums of weighted losses over micro-batches and ranks add up to the aggregate exactly.

    Args:
        mode: how losses are averaged.
        loss_mask: [N] tokens that count, before any rejection.
        offsets: [S + 1] segment boundaries.
        segments: [S] segments of the mini-batch; None takes all.
        agg_length: the constant length, for dr_grpo only.

    Raises:
        ValueError: unknown mode, or dr_grpo without `agg_length`.

    Source: arXiv:2503.14476 (token-mean), arXiv:2402.03300 (seq-mean-token-mean), arXiv:2503.20783 (dr_grpo).
    """
    lengths = np.diff(offsets)
    token_segment = np.repeat(np.arange(len(lengths)), lengths)
    selected = np.ones(len(lengths), np.bool_) if segments is None else segments
    mask = loss_mask & selected[token_segment]
    counts = np.bincount(token_segment[mask], minlength=len(lengths))
    sequences = max(int((counts > 0).sum()), 1)
    if mode == "token-mean":
        per_segment = np.full(len(lengths), 1.0 / max(int(counts.sum()), 1))
    elif mode == "seq-mean-token-mean":
        per_segment = 1.0 / (np.maximum(counts, 1) * sequences)
    elif mode == "seq-mean-token-sum":
        per_segment = np.full(len(lengths), 1.0 / sequences)
    elif mode == "dr_grpo":
        if agg_length is None or agg_length < 1:
            raise ValueError(f"agg 'dr_grpo' needs a constant length of at least 1, got {agg_length!r}")
        per_segment = np.full(len(lengths), 1.0 / (sequences * agg_length))
    else:
        raise ValueError(
            f"unknown aggregation '{mode}'; known: token-mean, seq-mean-token-mean, seq-mean-token-sum, dr_grpo"
        )
    return np.where(mask, per_segment[token_segment], 0.0).astype(np.float32)


def correction_weights(
    kind: Correction,
    old_logprobs: AnyArray,
    rollout_logprobs: AnyArray,
    mask: BoolArray,
    offsets: IndexArray,
    *,
    low: float,
    high: float,
) -> FloatArray:
    """Weights for the gap between trainer and sampler, w_t = exp(old_logprobs - rollout_logprobs) -> [N] float32.

    * token_tis: min(w_t, high)
    * token_mask ("IcePop"): w_t where low <= w_t <= high, else 0
    * seq_tis: min(W, high), W the product of w_t over the segment
    * seq_mask: W where low <= W <= high, else 0
    * geo_mask: w_t where low <= exp(mean log w) <= high over the segment, else 0; w_t itself is not truncated

    Tokens off the mask get 1: they are no business of the correction. Log-ratios and their sums are clamped to
    [-20, 20].

    Source: Yao et al. 2025 (truncated importance sampling); IcePop, arXiv:2510.18855; Liu, Li et al. 2025 (sequence
    and geometric masks).
    """
    if kind == "none":
        return np.ones(len(mask), np.float32)
    log_w = np.where(mask, np.clip(np.asarray(old_logprobs, np.float64) - rollout_logprobs, -_LIMIT, _LIMIT), 0.0)
    lengths = np.diff(offsets)
    token_segment = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(token_segment, weights=log_w, minlength=len(lengths))
    counts = np.bincount(token_segment[mask], minlength=len(lengths))
    token = np.exp(log_w)
    sequence = np.exp(np.clip(sums, -_LIMIT, _LIMIT))[token_segment]
    if kind == "token_tis":
        weights = np.minimum(token, high)
    elif kind == "token_mask":
        weights = np.where((token >= low) & (token <= high), token, 0.0)
    elif kind == "seq_tis":
        weights = np.minimum(sequence, high)
    elif kind == "seq_mask":
        weights = np.where((sequence >= low) & (sequence <= high), sequence, 0.0)
    elif kind == "geo_mask":
        geometric = np.exp(sums / np.maximum(counts, 1))[token_segment]
        weights = np.where((geometric >= low) & (geometric <= high), token, 0.0)
    else:
        raise ValueError(
            f"unknown correction '{kind}'; known: none, token_tis, token_mask, seq_tis, seq_mask, geo_mask"
        )
    return np.where(mask, weights, 1.0).astype(np.float32)


def effective_sample_size(weights: AnyArray) -> float:
    """Share of samples that importance weights [n] leave effective: 1 / mean((w / mean w)^2), in [1/n, 1]."""
    weights = np.asarray(weights, np.float64)
    squares = float(np.square(weights).mean()) if len(weights) else 0.0
    return float(weights.mean()) ** 2 / squares if squares > 0 else 0.0


def mismatch_metrics(
    old_logprobs: AnyArray, rollout_logprobs: AnyArray, mask: BoolArray, *, low: float = 0.5, high: float = 5.0
) -> dict[str, float]:
    """How far trainer and sampler are apart, over the mask; empty when nothing counts.

    Returns:
        `mismatch_abs` mean |log w|; `mismatch_k3` estimate of KL(sampler || trainer); `mismatch_max_weight`;
        `mismatch_ess` effective sample size of w; `mismatch_outside` share of tokens with w outside [low, high].
    """
    log_w = np.clip(np.asarray(old_logprobs, np.float64) - rollout_logprobs, -_LIMIT, _LIMIT)[mask]
    if not len(log_w):
        return {}
    weights = np.exp(log_w)
    return {
        "mismatch_abs": float(np.abs(log_w).mean()),
        "mismatch_k3": float((np.expm1(log_w) - log_w).mean()),
        "mismatch_max_weight": float(weights.max()),
        "mismatch_ess": effective_sample_size(weights),
        "mismatch_outside": float(((weights < low) | (weights > high)).mean()),
    }


def kl_reward(
    old_logprobs: AnyArray, ref_logprobs: AnyArray, estimator: Literal["k1", "k2", "k3", "unbiased"]
) -> FloatArray:
    """KL(pi || ref) per token for use in the reward (no gradient) -> [N].

    In a reward the unbiased estimator is k1 = log(pi / ref), so `unbiased` means k1 here.
    """
    d = np.clip(np.asarray(old_logprobs, np.float64) - ref_logprobs, -_LIMIT, _LIMIT)
    if estimator in ("k1", "unbiased"):
        values = d
    elif estimator == "k2":
        values = np.square(d) / 2
    elif estimator == "k3":
        values = np.expm1(-d) + d
    else:
        raise ValueError(f"unknown KL estimator '{estimator}'; known: k1, k2, k3, unbiased")
    return np.asarray(values, np.float32)


def overlong_penalty(length: int, *, max_length: int, buffer: int, penalty: float = 1.0, capped: bool = True) -> float:
    """Soft punishment (<= 0) of answers that come near the length limit.

    e = length - (max_length - buffer); the penalty is min(-e / buffer * penalty, 0).

    Args:
        length: sampled tokens.
        max_length: the limit.
        buffer: over how many tokens before the limit the penalty grows; 0 switches it off.
        penalty: its size at the limit.
        capped: stop at `-penalty` beyond the limit, as the paper does; False keeps growing.

    Source: DAPO, arXiv:2503.14476, equation 13.
    """
    if buffer == 0:
        return 0.0
    excess = length - (max_length - buffer)
    share = min(excess / buffer, 1.0) if capped else excess / buffer
    return min(-share * penalty, 0.0)


@dataclass(slots=True)
class KLController:
    """Moves a KL coefficient towards a target divergence.

    coef *= 1 + clip(kl / target - 1, -0.2, 0.2) * count / horizon

    Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2.
    """

    coef: float
    target: float
    horizon: float

    def update(self, kl: float, count: int) -> None:
        """Take one step; a KL that is not finite says nothing and leaves the coefficient as it is.

        Args:
            kl: measured mean KL per token.
            count: rollouts it was measured on.
        """
        if not math.isfinite(kl):
            return
        error = min(max(kl / self.target - 1.0, -_ADAPTIVE_CLIP), _ADAPTIVE_CLIP)
        self.coef *= 1.0 + error * count / self.horizon

    def state_dict(self) -> dict[str, Any]:
        """The coefficient."""
        return {"coef": self.coef}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the coefficient back."""
        self.coef = float(state["coef"])
