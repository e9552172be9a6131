"""Batches, objectives and comparisons of the tests."""

from __future__ import annotations

import numpy as np
from fsdp_ranks import policy_gradient

from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.contracts import MiniBatch, Term
from roll_core.types import Batch, SamplingParams

VOCABULARY = 62
SIZES = ((5, (4, 1, 7)), (3, (2, 6, 19)), (9, (3, 3, 3, 2)), (2, (1,)))


def build_batch(sizes=SIZES, *, seed: int = 0, sampling: SamplingParams | None = None) -> Batch:
    """Groups of (prompt length, response lengths), uneven; long responses hold tokens nobody sampled."""
    rng = np.random.default_rng(seed)
    tokens, masks, groups = [], [], []
    for group, (prompt, responses) in enumerate(sizes):
        head = rng.integers(0, VOCABULARY, prompt)
        for length in responses:
            tokens.append(np.concatenate([head, rng.integers(0, VOCABULARY, length)]))
            mask = np.concatenate([np.zeros(prompt), np.ones(length)]).astype(bool)
            if length >= 5:
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
        rollout_logprobs=np.where(mask, rng.normal(-4, 0.3, n), 0.0).astype(np.float32),
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


def objective(batch: Batch, *extra: Term, fn=policy_gradient, segments=None) -> MiniBatch:
    weights = (batch.loss_mask / max(1, batch.loss_mask.sum())).astype(np.float32)
    chosen = np.arange(batch.n_segments) if segments is None else np.array(segments, np.int64)
    return MiniBatch(chosen, (Term("policy", fn, weights), *extra))


def mean_term(batch: Batch, name: str, fn, needs: str) -> Term:
    weights = (batch.loss_mask / batch.loss_mask.sum()).astype(np.float32)
    return Term(name, fn, weights, frozenset({needs}))


def local_gradients(strategy: LocalTrainStrategy, role: str = "policy") -> dict[str, np.ndarray]:
    weights = strategy._weights if role == "policy" else strategy._critic.weights
    return {name: master.grad.numpy().copy() for name, master in weights.masters.items()}


def published(strategy) -> dict:
    return {name: tensor.clone() for name, tensor in strategy.weight_source().tensors()}


def same_gradients(found: dict, expected: dict, tolerance: float) -> float:
    """Largest difference over the largest gradient; checks it."""
    assert found.keys() == expected.keys()
    size = max(np.abs(g).max() for g in expected.values())
    worst = max(np.abs(found[n] - expected[n]).max() for n in expected)
    assert worst <= tolerance * size, f"gradients differ by {worst / size:.2e} of the largest"
    return float(worst / size)
