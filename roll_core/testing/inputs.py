"""Inputs of advantage estimators and policy losses, made from a few plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roll_core.contracts import LossInputs
from roll_core.types import AdvantageInputs, AnyArray

if TYPE_CHECKING:
    from torch import Tensor


def make_advantage_inputs(
    rewards: Sequence[float],
    groups: Sequence[int],
    lengths: Sequence[int] | None = None,
    *,
    prompt_length: int = 2,
    gap: int = 0,
    token_rewards: AnyArray | None = None,
    values: AnyArray | None = None,
    greedy_rewards: Sequence[float] | None = None,
) -> AdvantageInputs:
    """Inputs of an advantage estimator, one segment a rollout.

    Args:
        rewards: terminal rewards [B].
        groups: group of each rollout [B].
        lengths: sampled tokens of each rollout [B]; 2, 3, 4, … by default.
        prompt_length: unsampled tokens before them.
        gap: unsampled tokens (say, of a tool) in the middle of each response.
        token_rewards: dense rewards [N]; zeros by default.
        values: a critic's values [N].
        greedy_rewards: rewards of the greedy baselines [B].
    """
    lengths = list(range(2, 2 + len(rewards))) if lengths is None else list(lengths)
    masks = [[False] * prompt_length + [True] * (n - n // 2) + [False] * gap + [True] * (n // 2) for n in lengths]
    mask = np.array([m for row in masks for m in row], dtype=np.bool_)
    return AdvantageInputs(
        rewards=np.array(rewards, dtype=np.float32),
        groups=np.array(groups, dtype=np.int64),
        offsets=np.concatenate([[0], np.cumsum([len(m) for m in masks])]).astype(np.int64),
        segment_rollout=np.arange(len(rewards), dtype=np.int64),
        response_mask=mask,
        token_rewards=np.zeros(len(mask), np.float32) if token_rewards is None else token_rewards,
        values=values,
        greedy_rewards=None if greedy_rewards is None else np.array(greedy_rewards, dtype=np.float32),
    )


def make_loss_inputs(
    lengths: Sequence[int] = (3, 4, 2),
    *,
    log_ratio: Tensor | float | None = None,
    advantages: Sequence[float] | None = None,
    columns: Iterable[str] = (),
    seed: int = 0,
) -> LossInputs:
    """Inputs of a policy loss, float64, with one unsampled token before each segment's sampled ones. Needs torch.

    Args:
        lengths: sampled tokens of each segment.
        log_ratio: `logprobs - old_logprobs` [n] or for all tokens; random within +-0.5 by default.
        advantages: one value per segment; alternating 1 and -0.5 by default.
        columns: names of extra columns the loss reads.
        seed: of the random values.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def rand(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)

    sizes = torch.tensor([1 + length for length in lengths])
    segment_ids = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
    n = len(segment_ids)
    mask = torch.ones(n, dtype=torch.bool)
    mask[torch.cumsum(sizes, 0) - sizes] = False
    per_segment = [(1.0, -0.5)[i % 2] for i in range(len(lengths))] if advantages is None else list(advantages)
    old = rand(-3.0, -0.5)
    shift = rand(-0.5, 0.5) if log_ratio is None else torch.as_tensor(log_ratio, dtype=torch.float64)
    return LossInputs(
        logprobs=(old + shift).requires_grad_(),
        old_logprobs=old,
        rollout_logprobs=old.clone(),
        advantages=torch.tensor(per_segment, dtype=torch.float64)[segment_ids] * mask,
        mask=mask,
        segment_ids=segment_ids,
        n_segments=len(lengths),
        entropy=rand(0.1, 1.0),
        full_logprobs=old + shift,
        ref_logprobs=old + rand(-0.3, 0.3),
        values=rand(-1.0, 1.0),
        old_values=rand(-1.0, 1.0),
        returns=rand(-1.0, 1.0),
        columns={name: rand(-2.0, -0.1) for name in columns},
    )
