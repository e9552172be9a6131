"""Rollouts over several versions: corrections and decoupled PPO divide by the log-probs of whoever sampled a token."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from stepped import SteppedBackend, ahead, skewed, train  # noqa: E402 - after the path

from roll_core.builtin.advantages.grpo import Grpo  # noqa: E402
from roll_core.builtin.policy_losses.decoupled_ppo import DecoupledPpo  # noqa: E402
from roll_core.builtin.policy_losses.ppo_clip import PpoClip  # noqa: E402
from roll_core.config.schema import AlgorithmConfig  # noqa: E402
from roll_core.contracts import LossInputs  # noqa: E402
from roll_core.credit import Credit, DomainAlgorithm  # noqa: E402
from roll_core.types import Batch, Rollout, batch_of  # noqa: E402

OLD = -8.5
"""The trainer's log-prob of every token; the sampler's was minus its version (see `SteppedBackend`)."""


def mixed_batch() -> tuple[Batch, np.ndarray]:
    """Groups with rollouts over several versions, and the version of every token (-1 in prompts)."""
    backend = SteppedBackend(skewed)
    batches = asyncio.run(train(ahead(backend, steps=20, staleness=4), backend, range(20), 10))
    mixed = [group for groups in batches for group in groups if any(versions_of(r) > 2 for r in group.rollouts)]
    assert mixed
    batch = batch_of(mixed, ("d",))
    versions = np.full(batch.n_tokens, -1)
    segments = [r.segments[0] for g in mixed for r in g.rollouts]
    for start, segment in zip(batch.offsets[:-1], segments, strict=True):
        for run in segment.versions:
            versions[start + run.start : start + run.stop] = run.policy.version
    batch.add("old_logprobs", np.where(batch.loss_mask, OLD, 0.0).astype(np.float32))
    return batch, versions


def versions_of(rollout: Rollout) -> int:
    return len({run.policy.version for run in rollout.segments[0].versions})


def credit(built: Any, **values: Any) -> Credit:
    algorithm = DomainAlgorithm(AlgorithmConfig.model_validate(values), Grpo(), built, 1.0, 10_000)
    return Credit({"d": algorithm}, mini_batches=1, epochs=1, seed=0, critic=None)


@pytest.fixture(scope="module")
def mixed() -> tuple[Batch, np.ndarray]:
    return mixed_batch()


def test_truncated_importance_sampling_weighs_each_token_by_its_own_sampler(mixed: tuple[Batch, np.ndarray]) -> None:
    batch, versions = mixed
    credit(PpoClip(), correction={"kind": "token_tis", "high": 2.0}).advantages(batch)
    seen = set(versions[batch.loss_mask])
    assert min(seen) < 8 < 10 < max(seen)
    for version in seen:
        got = batch.columns["correction"][batch.loss_mask & (versions == version)]
        np.testing.assert_allclose(got, min(math.exp(OLD + version), 2.0), rtol=1e-6)


def test_decoupled_ppo_weighs_each_token_by_its_own_sampler(mixed: tuple[Batch, np.ndarray]) -> None:
    batch, versions = mixed
    room = credit(DecoupledPpo(cap=5.0), loss={"use": "decoupled_ppo"})
    room.advantages(batch)
    assert (batch.columns["correction"] == 1).all(), "the loss corrects already"
    (mini,) = room.mini_batches(batch, 0)
    term = next(term for term in mini.terms if term.name == "policy")
    loss = term.fn(inputs_of(batch, np.full(batch.n_tokens, OLD + 0.1))).numpy()
    ratio = math.exp(0.1)
    for version in set(versions[batch.loss_mask]):
        weight = min(math.exp(OLD + version), 5.0)
        got = loss[batch.loss_mask & (versions == version)]
        np.testing.assert_allclose(got, -weight * ratio, rtol=1e-5)


def inputs_of(batch: Batch, logprobs: np.ndarray) -> LossInputs:
    """What a strategy hands over, with an advantage of 1 everywhere."""
    return LossInputs(
        logprobs=torch.tensor(logprobs),
        old_logprobs=torch.tensor(batch.columns["old_logprobs"]).double(),
        rollout_logprobs=torch.tensor(batch.rollout_logprobs).double(),
        advantages=torch.ones(batch.n_tokens, dtype=torch.float64),
        mask=torch.tensor(batch.loss_mask),
        segment_ids=torch.tensor(batch.token_segment),
        n_segments=batch.n_segments,
    )
