"""Gradients are those of the single-process strategy, for every policy loss and aggregation, on 1, 2 and 4 ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fsdp_cases import build_batch, local_gradients, objective, published, same_gradients
from fsdp_ranks import infinite_where_marked

from roll_core.builtin.plugin import roll_register_policy_losses
from roll_core.contracts import MiniBatch, OptimSettings, Term
from roll_core.credit.terms import PolicyTerm
from roll_core.numerics import aggregation_weights
from roll_core.types import SamplingParams

LOSSES = {component.name: component.load_factory() for component in roll_register_policy_losses()}
AGGREGATIONS = {"token-mean": None, "seq-mean-token-mean": None, "seq-mean-token-sum": None, "dr_grpo": 16}
STILL = OptimSettings(lr=0.0, clip_norm=0.0)
TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def reference(local, make_setup):
    return local(make_setup(optim=STILL))


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n} ranks")
def ranks(request, start_for_module, make_setup):
    return start_for_module(make_setup(optim=STILL), request.param, micro_tokens=40)


def policy_term(batch, loss: str, mode: str, segments=None) -> Term:
    chosen = np.ones(batch.n_segments, np.bool_) if segments is None else segments
    weights = aggregation_weights(mode, batch.loss_mask, batch.offsets, chosen, AGGREGATIONS[mode])
    return Term("policy", PolicyTerm(LOSSES[loss](), loss, measure_mismatch=True), weights)


@pytest.fixture(scope="module")
def batch(reference):
    found = build_batch(sampling=SamplingParams(temperature=1.3))
    rng = np.random.default_rng(3)
    old = reference.compute(found, frozenset({"old_logprobs"}))["old_logprobs"]
    found.add("old_logprobs", np.where(found.response_mask, old + rng.normal(0, 0.15, len(old)), 0).astype(np.float32))
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_and_aggregation(ranks, reference, batch, loss) -> None:
    for mode in AGGREGATIONS:
        mini = MiniBatch(np.arange(batch.n_segments), (policy_term(batch, loss, mode),))
        expected, found = reference.update(batch, [mini]), ranks.update(batch, [mini])
        same_gradients(ranks.gradients(), local_gradients(reference), TOLERANCE)
        for name in expected.keys() - {"train/rows", "train/micro_batches"}:
            assert found[name] == pytest.approx(expected[name], rel=2e-5, abs=1e-7), (mode, name)


def test_columns(ranks, reference, batch) -> None:
    columns = frozenset({"old_logprobs", "entropy"})
    found, expected = ranks.compute(batch, columns), reference.compute(batch, columns)
    for name in columns:
        np.testing.assert_allclose(found[name], expected[name], atol=3e-6)
        assert (found[name][~batch.response_mask] == 0).all()


def test_kept_sets_travel_with_their_tokens(ranks, reference) -> None:
    batch = build_batch(sampling=SamplingParams(top_k=2))
    counts = np.where(batch.response_mask & (batch.token_domain == 0), 2, 0).astype(np.int32)
    ids = [(t, (t + 1) % 62) for t in batch.token_ids[counts > 0]]
    batch.columns |= {"keep_counts": counts, "keep_ids": np.array(ids, np.int32).ravel()}
    columns = frozenset({"old_logprobs"})
    found, expected = ranks.compute(batch, columns), reference.compute(batch, columns)
    np.testing.assert_allclose(found["old_logprobs"], expected["old_logprobs"], atol=3e-6)


@pytest.mark.parametrize("segments", [[5], [0, 5, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9]], ids=["one", "three", "nine"])
def test_uneven_shares_and_idle_ranks(ranks, reference, batch, segments) -> None:
    chosen = np.zeros(batch.n_segments, np.bool_)
    chosen[segments] = True
    mini = MiniBatch(np.array(segments), (policy_term(batch, "ppo_clip", "seq-mean-token-mean", chosen),))
    expected, found = reference.update(batch, [mini]), ranks.update(batch, [mini])
    same_gradients(ranks.gradients(), local_gradients(reference), TOLERANCE)
    assert found["train/tokens"] == expected["train/tokens"]


def test_segments_without_a_counted_token(ranks, reference, batch) -> None:
    masked = replace(batch, loss_mask=batch.loss_mask & (batch.token_segment == 5))
    mini = MiniBatch(np.arange(batch.n_segments), (policy_term(masked, "gspo", "token-mean"),))
    reference.update(masked, [mini])
    ranks.update(masked, [mini])
    same_gradients(ranks.gradients(), local_gradients(reference), TOLERANCE)


def test_a_bad_gradient_on_one_rank_is_skipped_on_all(ranks, batch) -> None:
    before = published(ranks)
    marked = replace(batch, columns={**batch.columns, "marked": (batch.token_segment == 5).astype(np.float32)})
    metrics = ranks.update(marked, [objective(marked, fn=infinite_where_marked)])
    assert metrics["train/skipped_steps"] == 1
    assert "train/grad_norm" not in metrics
    assert all((tensor == before[name]).all() for name, tensor in published(ranks).items())
    again = ranks.update(marked, [objective(marked)])
    assert again["train/skipped_steps"] == 0
    assert math.isfinite(again["train/grad_norm"])
