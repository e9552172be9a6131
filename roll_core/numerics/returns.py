"""Returns and advantages over ragged rollouts (numpy), vectorised over rollouts.

Tokens that were not sampled (tool output, a later turn's prompt) lie in gaps between sampled ones. Every function
that walks through time names what it does there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from roll_core.types import AdvantageInputs, AnyArray, BoolArray, FloatArray, IndexArray

DiscountGap = Literal["carry", "decay"]
ValueGap = Literal["skip", "zero"]


def spread(values: AnyArray, *, ddof: int) -> float:
    """Standard deviation of `values` [n]; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    return float(np.std(np.asarray(values, np.float64), ddof=ddof))


def whiten_array(values: AnyArray, mask: BoolArray, *, ddof: int = 1, eps: float = 1e-8) -> FloatArray:
    """Centre and scale over the mask: (x - mean) / sqrt(var + eps); 0 off the mask and where nothing varies.

    Args:
        values: [N].
        mask: [N].
        ddof: 1 divides the squared deviations by count - 1, 0 by count.
        eps: added to the variance.
    """
    out = np.zeros(len(mask), np.float32)
    counted = np.asarray(values, np.float64)[mask]
    if not len(counted):
        return out
    centred = counted - counted.mean()
    scale = np.sqrt(np.square(centred).sum() / max(len(counted) - ddof, 1) + eps)
    if scale > 0:
        out[mask] = centred / scale
    return out


def discounted_returns(inputs: AdvantageInputs, *, gamma: float, gap: DiscountGap) -> FloatArray:
    """G_t = r_t + gamma G_{t+1}, the rollout's reward added at its last sampled token -> [N], 0 off the mask.

    Args:
        inputs: rewards [B], token_rewards [N], response_mask [N].
        gamma: discount per step.
        gap: "carry" takes a step at sampled tokens only; "decay" also discounts at every token between them.
    """
    span, counts = _time_order(inputs, through_gaps=gap == "decay")
    rewards = _rewards_at_tokens(inputs)[span]
    out = np.zeros(len(inputs.response_mask))
    out[span] = _reverse_scan(rewards, counts, gamma)
    return np.where(inputs.response_mask, out, 0.0).astype(np.float32)


def generalised_advantages(
    inputs: AdvantageInputs, values: AnyArray, *, gamma: float, lam: float, gap: ValueGap
) -> tuple[FloatArray, FloatArray]:
    """GAE: delta_t = r_t + gamma V_{t+1} - V_t; A_t = delta_t + gamma lam A_{t+1}; returns = A + V.

    Args:
        inputs: rewards [B], token_rewards [N], response_mask [N].
        values: [N] critic's values; read at sampled tokens only.
        gamma: discount per step.
        lam: bias-variance trade-off.
        gap: "skip" takes a step at sampled tokens only; "zero" walks through the tokens between them with V = r = 0.

    Returns:
        advantages [N] and returns [N], both 0 off the mask.
    """
    span, counts = _time_order(inputs, through_gaps=gap == "zero")
    mask = inputs.response_mask
    masked_values = np.where(mask, np.asarray(values, np.float64), 0.0)
    at = masked_values[span]
    following = np.append(at[1:], 0.0)
    ends = np.cumsum(counts)[counts > 0] - 1
    following[ends] = 0.0
    delta = _rewards_at_tokens(inputs)[span] + gamma * following - at
    advantages = np.zeros(len(mask))
    advantages[span] = _reverse_scan(delta, counts, gamma * lam)
    advantages = np.where(mask, advantages, 0.0)
    return advantages.astype(np.float32), (advantages + masked_values).astype(np.float32)


def _rewards_at_tokens(inputs: AdvantageInputs) -> AnyArray:
    """Dense rewards on sampled tokens, each rollout's reward added at its last sampled token [N] float64."""
    rewards = np.where(inputs.response_mask, inputs.token_rewards, 0.0).astype(np.float64)
    span, counts = _time_order(inputs, through_gaps=False)
    last = span[np.cumsum(counts)[counts > 0] - 1]
    rewards[last] += inputs.rewards[counts > 0]
    return rewards


def _time_order(inputs: AdvantageInputs, *, through_gaps: bool) -> tuple[IndexArray, IndexArray]:
    """Indices of the tokens a walk visits, rollout after rollout in time order, and how many each rollout has [B].

    Segments of one rollout follow each other in the order of the batch. Through gaps, the walk runs from the first to
    the last sampled token.
    """
    rollout = inputs.token_rollout
    order = np.argsort(rollout, kind="stable")
    if through_gaps:
        sampled = inputs.response_mask[order]
        positions = np.arange(len(order))
        size = len(inputs.rewards)
        first = np.full(size, len(order))
        last = np.full(size, -1)
        np.minimum.at(first, rollout[order][sampled], positions[sampled])
        np.maximum.at(last, rollout[order][sampled], positions[sampled])
        kept = (positions >= first[rollout[order]]) & (positions <= last[rollout[order]])
    else:
        kept = inputs.response_mask[order]
    span = order[kept]
    return span, np.bincount(rollout[span], minlength=len(inputs.rewards))


def _reverse_scan(steps: AnyArray, counts: IndexArray, decay: float) -> AnyArray:
    """y_t = x_t + decay * y_{t+1} within each of consecutive runs of `counts` [B] steps -> like `steps`, float64.

    One numpy operation per time step over all runs at once; the runs still going are kept in front.
    """
    by_length = np.argsort(-counts, kind="stable")
    ends = np.cumsum(counts)[by_length] - 1
    lengths = counts[by_length]
    out = np.zeros(len(steps))
    running = np.zeros(len(counts))
    for back in range(int(lengths[0]) if len(lengths) else 0):
        active = int(np.searchsorted(-lengths, -back, side="left"))
        at = ends[:active] - back
        running[:active] = steps[at] + decay * running[:active]
        out[at] = running[:active]
    return out
