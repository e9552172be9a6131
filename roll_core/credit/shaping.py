"""What is done to rollouts before they become a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from roll_core.config.schema import OverlongConfig
from roll_core.numerics import overlong_penalty
from roll_core.types import FloatArray, RewardRecord, Rollout, RolloutGroup

COMPONENT = "overlong"
"""Name under which the penalty appears among a rollout's reward records."""


def shape_overlong(rollouts: Iterable[Rollout], config: OverlongConfig, max_new_tokens: int) -> None:
    """Punish answers near the length limit and take truncated ones out of the loss, as `config` says.

    Doing it twice is the same as doing it once.
    """
    for rollout in rollouts:
        if config.buffer > 0:
            value = overlong_penalty(
                rollout.response_length, max_length=max_new_tokens, buffer=config.buffer, penalty=config.penalty
            )
            rollout.rewards = [r for r in rollout.rewards if r.component != COMPONENT]
            rollout.rewards.append(RewardRecord(COMPONENT, value))
        if config.mask and rollout.is_truncated:
            for segment in rollout.segments:
                segment.loss_mask = np.zeros_like(segment.loss_mask)


def greedy_rewards(groups: Sequence[RolloutGroup]) -> FloatArray:
    """Reward of the greedy answer to each rollout's prompt [B], in the row order of `batch_of(groups, ...)`.

    NaN where a group's greedy answer is missing or has no score: estimators give such rollouts no credit.
    """
    rewards: list[float] = []
    for group in sorted(groups, key=lambda g: g.ticket.id):
        greedy = group.greedy
        value = greedy.reward if greedy is not None and greedy.is_scored else float("nan")
        rewards += [value] * len(group.scored)
    return np.array(rewards, dtype=np.float32)
