from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.contracts import LossInputs, MiniBatch, OptimSettings, Term, TrainSetup
from roll_core.testing.tiny import make_tiny_model
from roll_core.types import Batch, SamplingParams

VOCABULARY = 62


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=1)


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return build_batch


@pytest.fixture
def make_setup(tiny: Path) -> Callable[..., TrainSetup]:
    def make(**changes: object) -> TrainSetup:
        settings = {"model": tiny, "optim": OptimSettings(lr=1e-2, clip_norm=0.0), "total_steps": 100, **changes}
        return TrainSetup(**settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def objective() -> Callable[..., MiniBatch]:
    """A mini-batch of policy-gradient and (optionally) further terms over all segments."""

    def make(batch: Batch, *extra: Term, fn: Callable[[LossInputs], torch.Tensor] | None = None) -> MiniBatch:
        weights = (batch.loss_mask / max(1, batch.loss_mask.sum())).astype(np.float32)
        term = Term("policy", fn or negative_logprob, weights)
        return MiniBatch(np.arange(batch.n_segments), (term, *extra))

    return make


def negative_logprob(inputs: LossInputs) -> torch.Tensor:
    inputs.metric("policy/logprob", inputs.logprobs)
    return -inputs.advantages * inputs.logprobs


def build_batch(
    sizes: tuple[tuple[int, tuple[int, ...]], ...] = ((5, (4, 1, 7)), (3, (2, 6)), (9, (3, 3, 3))),
    *,
    seed: int = 0,
    gaps: bool = True,
    sampling: SamplingParams | None = None,
    vocabulary: int = VOCABULARY,
) -> Batch:
    """Groups of (prompt length, response lengths); with `gaps`, long responses hold tokens nobody sampled."""
    rng = np.random.default_rng(seed)
    tokens: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    groups: list[int] = []
    for group, (prompt, responses) in enumerate(sizes):
        start = rng.integers(0, vocabulary, prompt)
        for length in responses:
            tokens.append(np.concatenate([start, rng.integers(0, vocabulary, length)]))
            mask = np.concatenate([np.zeros(prompt), np.ones(length)]).astype(bool)
            if gaps and length >= 5:
                mask[prompt + 2 : prompt + 4] = False
            masks.append(mask)
            groups.append(group)
    mask = np.concatenate(masks)
    n = len(mask)
    batch = Batch(
        token_ids=np.concatenate(tokens).astype(np.int32),
        offsets=np.cumsum([0, *map(len, tokens)]).astype(np.int64),
        response_mask=mask,
        loss_mask=mask.copy(),
        rollout_logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        segment_rollout=np.arange(len(tokens)),
        rollout_group=np.array(groups),
        rollout_domain=np.array(groups) % 2,
        domains=("even", "odd"),
        rewards=rng.normal(size=len(tokens)).astype(np.float32),
        scores=np.zeros(len(tokens), np.float32),
    )
    if sampling is not None:
        batch.sampling = {"even": sampling, "odd": SamplingParams(temperature=0.7)}
    batch.add("advantages", np.where(mask, rng.normal(size=n), 0.0).astype(np.float32))
    return batch
