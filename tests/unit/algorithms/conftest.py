"""Toy inputs for estimators and losses, and the table of golden values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.contracts import LossInputs
from roll_core.types import AdvantageInputs

NAME_WIDTH = 52


@pytest.fixture(scope="session")
def golden() -> Callable[[str], np.ndarray]:
    """Golden value by the name it has in golden.txt (computed by an independent numpy script)."""
    table = {}
    for line in (Path(__file__).parent / "golden.txt").read_text().splitlines():
        name, value = line[:NAME_WIDTH].strip(), line[NAME_WIDTH:]
        table[name] = np.array([float(v) for v in value.strip(" []").split(",")])
    return table.__getitem__


@pytest.fixture(scope="session")
def advantage_inputs() -> Callable[..., AdvantageInputs]:
    """Build inputs out of rewards, groups and one response mask per rollout (one segment each)."""

    def build(
        rewards: Sequence[float], groups: Sequence[int], masks: Sequence[Sequence[int]], **more: Any
    ) -> AdvantageInputs:
        lengths = [len(m) for m in masks]
        mask = np.concatenate([np.array(m, dtype=bool) for m in masks])
        dense = more.pop("token_rewards", np.zeros(len(mask), np.float32))
        return AdvantageInputs(
            rewards=np.array(rewards, np.float32),
            groups=np.array(groups, np.int64),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            segment_rollout=np.arange(len(masks)),
            response_mask=mask,
            token_rewards=np.asarray(dense, np.float32),
            **more,
        )

    return build


@pytest.fixture(scope="session")
def loss_inputs() -> Callable[..., LossInputs]:
    """Build float64 loss inputs; absent columns get harmless values, one segment unless `lengths` says otherwise."""

    def build(logprobs: Any, advantages: Any, *, lengths: Sequence[int] | None = None, **more: Any) -> LossInputs:
        def tensor(value: Any) -> torch.Tensor:
            return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)

        logprobs = tensor(logprobs)
        n = len(logprobs)
        lengths = lengths or [n]
        mask = more.pop("mask", torch.ones(n, dtype=torch.bool))
        return LossInputs(
            logprobs=logprobs,
            old_logprobs=tensor(more.pop("old_logprobs", logprobs.detach())),
            rollout_logprobs=tensor(more.pop("rollout_logprobs", logprobs.detach())),
            advantages=tensor(advantages),
            mask=torch.as_tensor(mask, dtype=torch.bool),
            segment_ids=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
            n_segments=len(lengths),
            **more,
        )

    return build
