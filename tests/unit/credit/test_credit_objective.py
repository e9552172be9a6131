"""The objective: denominators, domains, correction, terms, mini-batches, invariance to the split."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from roll_core.config.schema import CriticConfig
from roll_core.contracts import MiniBatch
from roll_core.credit import Credit
from roll_core.errors import BackendError, ComponentError
from roll_core.numerics import aggregation_weights
from roll_core.types import batch_of

AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]


def credit_of(algorithms, **values):
    values = {"mini_batches": 1, "epochs": 1, "seed": 0, "critic": CriticConfig(), **values}
    return Credit(algorithms, **values)


def only(credit, batch):
    credit.advantages(batch)
    (mini_batch,) = credit.mini_batches(batch, 0)
    return mini_batch


# --- denominators and domains -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_one_domain_is_the_plain_aggregate(agg, algorithm, make_batch, evaluate):
    batch = make_batch({"math": 3})
    mini_batch = only(credit_of({"math": algorithm(agg=agg)}), batch)
    (term,) = mini_batch.terms
    expected = aggregation_weights(agg, batch.loss_mask, batch.offsets, agg_length=16)
    np.testing.assert_allclose(term.weights, expected, rtol=1e-6)
    value, _, _ = evaluate(batch, mini_batch)
    assert value == pytest.approx(-(expected * batch.columns["advantages"]).sum(), abs=1e-6)


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_domains_that_aggregate_alike_are_the_objective_over_their_union(agg, algorithm, make_batch, evaluate):
    together = make_batch({"a": 2, "b": 3})
    mini_batch = only(credit_of({"a": algorithm(agg=agg), "b": algorithm(agg=agg)}), together)
    assert [t.name for t in mini_batch.terms if t.name.startswith("policy")] == ["policy"]
    expected = aggregation_weights(agg, together.loss_mask, together.offsets, agg_length=16)
    np.testing.assert_allclose(mini_batch.terms[0].weights, expected, rtol=1e-6)
    apart = make_batch({"a": 2, "b": 3})
    other = credit_of({"a": algorithm(agg=agg), "b": algorithm(agg=agg, loss={"use": "ppo_clip", "clip_low": 0.25})})
    split = only(other, apart)
    policy = [t for t in split.terms if t.name.startswith("policy")]
    assert [t.name for t in policy] == ["policy/a", "policy/b"]
    np.testing.assert_allclose(policy[0].weights + policy[1].weights, expected, rtol=1e-6)
    np.testing.assert_allclose(evaluate(apart, split)[1], evaluate(together, mini_batch)[1], atol=1e-9)


def test_a_domain_that_aggregates_differently_counts_with_its_share_of_rollouts(algorithm, make_batch):
    batch = make_batch({"a": 1, "b": 3})
    credit = credit_of({"a": algorithm(), "b": algorithm(agg="seq-mean-token-mean")})
    weights = only(credit, batch).terms[0].weights
    in_a = batch.token_domain == 0
    tokens = (batch.loss_mask & in_a).sum()
    np.testing.assert_allclose(weights[in_a & batch.loss_mask], 0.25 / tokens, rtol=1e-6)
    assert weights[~in_a].sum() == pytest.approx(0.75, rel=1e-6)


def test_domain_weight_scales_its_tokens_only(algorithm, make_batch):
    batch = make_batch({"a": 1, "b": 1})
    plain = only(credit_of({"a": algorithm(), "b": algorithm()}), batch).terms[0].weights
    scaled = only(credit_of({"a": algorithm(weight=3.0), "b": algorithm()}), batch).terms[0].weights
    in_a = batch.token_domain == 0
    np.testing.assert_allclose(scaled, np.where(in_a, 3 * plain, plain), rtol=1e-6)


def test_dr_grpo_takes_the_token_limit_or_the_given_length(algorithm, make_batch):
    batch = make_batch({"math": 1})
    by_limit = only(credit_of({"math": algorithm(agg="dr_grpo", max_new_tokens=16)}), batch).terms[0].weights
    given = only(credit_of({"math": algorithm(agg="dr_grpo", agg_length=32)}), batch).terms[0].weights
    np.testing.assert_allclose(by_limit, 2 * given, rtol=1e-6)
    assert by_limit.max() == pytest.approx(1 / (3 * 16))


def test_rejected_tokens_stay_in_the_denominator(algorithm, make_batch):
    batch = make_batch({"math": 3}, "old_logprobs")
    credit = credit_of(
        {"math": algorithm(correction={"kind": "token_mask", "low": 0.9, "high": 1.1}, entropy_coef=0.1)}
    )
    policy, entropy = only(credit, batch).terms
    correction = batch.columns["correction"]
    assert 0 < (correction[batch.loss_mask] == 0).sum() < batch.loss_mask.sum()
    np.testing.assert_allclose(policy.weights, batch.loss_mask * correction / batch.loss_mask.sum(), rtol=1e-6)
    np.testing.assert_allclose(entropy.weights, 0.1 * batch.loss_mask / batch.loss_mask.sum(), rtol=1e-6)


# --- terms ------------------------------------------------------------------------------------------------------------


def test_terms_appear_only_where_their_coefficient_asks(algorithm, make_batch):
    batch = make_batch({"a": 1, "b": 1, "c": 1}, "ref_logprobs", "values", "old_logprobs")
    algorithms = {
        "a": algorithm(kl={"coef": 0.1}, entropy_coef=0.01),
        "b": algorithm(kl={"coef": 0.2}),
        "c": algorithm(advantage="gae", entropy_coef=-0.02),
    }
    terms = {t.name: t for t in only(credit_of(algorithms), batch).terms}
    assert list(terms) == ["policy", "kl/a+b", "entropy/a+c", "value/c"]
    base = terms["policy"].weights
    coefs = np.array([0.1, 0.2, 0.0])[batch.token_domain]
    np.testing.assert_allclose(terms["kl/a+b"].weights, base * coefs, rtol=1e-5)
    coefs = np.array([0.01, 0.0, -0.02])[batch.token_domain]
    np.testing.assert_allclose(terms["entropy/a+c"].weights, base * coefs, rtol=1e-5)
    counted = (batch.token_domain == 2) & batch.loss_mask
    np.testing.assert_allclose(terms["value/c"].weights, counted / counted.sum(), rtol=1e-6)
    np.testing.assert_array_equal(terms["value/c"].mask, counted)
    assert terms["policy"].mask is None
    assert [sorted(t.needs) for t in terms.values()] == [["logprobs"], ["logprobs"], ["entropy"], ["values"]]


def test_metrics_of_a_domains_term_see_its_tokens_only(algorithm, make_batch, evaluate):
    batch = make_batch({"a": 1, "b": 1}, "old_logprobs", "ref_logprobs")
    algorithms = {"a": algorithm(kl={"coef": 0.1}), "b": algorithm(loss="reinforce")}
    _, _, metrics = evaluate(batch, only(credit_of(algorithms), batch))
    alone = make_batch({"a": 1, "b": 1}, "old_logprobs", "ref_logprobs")
    alone.loss_mask &= alone.token_domain == 0
    _, _, expected = evaluate(alone, only(credit_of(algorithms), alone))
    for name in ("policy/clip_fraction", "policy/ratio", "policy/kl", "policy/kl/a"):
        assert metrics[name] == pytest.approx(expected[name], rel=1e-6)


def test_the_reported_kl_is_k3_whatever_the_estimator(algorithm, make_batch, evaluate):
    batch = make_batch({"math": 2}, "ref_logprobs")
    reported = []
    for estimator in ("k1", "k2", "k3", "unbiased"):
        credit = credit_of({"math": algorithm(kl={"coef": 0.1, "estimator": estimator})})
        reported.append(evaluate(batch, only(credit, batch))[2]["policy/kl"])
    assert reported == pytest.approx([reported[2]] * 4)
    (_, term) = only(credit_of({"math": algorithm(kl={"coef": 1.0, "estimator": "k3"})}), batch).terms
    alone = MiniBatch(np.arange(batch.n_segments), (term,))
    assert evaluate(batch, alone)[0] == pytest.approx(reported[2], rel=1e-5)


def test_terms_travel_to_other_processes(algorithm, make_batch):
    batch = make_batch({"a": 1, "b": 1}, "ref_logprobs", "values")
    algorithms = {"a": algorithm(advantage="gae", kl={"coef": 0.1}, entropy_coef=0.1), "b": algorithm(loss="cispo")}
    mini_batch = only(credit_of(algorithms), batch)
    back = pickle.loads(pickle.dumps(mini_batch))
    assert [t.name for t in back.terms] == [t.name for t in mini_batch.terms]
    assert [t.fn for t in back.terms] == [t.fn for t in mini_batch.terms]


def test_a_faulty_loss_is_named(algorithm, make_batch, evaluate):
    def scalar(inputs):
        return inputs.logprobs.mean()

    def broken(inputs):
        raise ValueError("no")

    batch = make_batch({"math": 1})
    with pytest.raises(ComponentError, match="one value per token"):
        evaluate(batch, only(credit_of({"math": algorithm(loss={"use": scalar})}), batch))
    with pytest.raises(ValueError, match="no") as caught:
        evaluate(batch, only(credit_of({"math": algorithm(loss={"use": broken})}), batch))
    assert "raised by policy loss 'broken'" in caught.value.__notes__[0]


def test_a_term_names_what_the_strategy_did_not_give(algorithm, make_batch, evaluate):
    batch = make_batch({"math": 1})
    mini_batch = only(credit_of({"math": algorithm(kl={"coef": 0.1})}), batch)
    with pytest.raises(BackendError, match="ref_logprobs"):
        evaluate(batch, mini_batch)


# --- mini-batches -----------------------------------------------------------------------------------------------------


def test_every_epoch_covers_every_group_once_in_an_order_of_its_own(algorithm, make_batch):
    batch = make_batch({"math": 7})
    credit = credit_of({"math": algorithm(loss="reinforce")}, mini_batches=3, epochs=2, seed=4)
    credit.advantages(batch)
    out = credit.mini_batches(batch, step=5)
    assert len(out) == 6
    groups = [sorted({int(batch.rollout_group[batch.segment_rollout[s]]) for s in m.segments}) for m in out]
    assert sorted(map(len, groups[:3])) == [2, 2, 3]
    for epoch in (groups[:3], groups[3:]):
        assert sorted(g for part in epoch for g in part) == list(range(7))
    assert groups[:3] != groups[3:]
    assert all((np.diff(m.segments) > 0).all() for m in out)
    for m in out:
        inside = np.isin(batch.token_segment, m.segments) & batch.loss_mask
        np.testing.assert_allclose(m.terms[0].weights, inside / inside.sum(), rtol=1e-6)

    def plan(seed, step):
        other = credit_of({"math": algorithm(loss="reinforce")}, mini_batches=3, epochs=2, seed=seed)
        return [m.segments.tolist() for m in other.mini_batches(batch, step)]

    assert plan(4, 5) == [m.segments.tolist() for m in out]
    assert plan(4, 6) != plan(4, 5) != plan(3, 5)


def test_mini_batches_without_a_counted_token_are_left_out(algorithm, group):
    batch = batch_of([group(0, "math", [(1.0, 2), (0.0, 1)]), group(1, "math", [(1.0, 2), (0.0, 1)])], ["math"])
    batch.loss_mask &= batch.rollout_group[batch.token_rollout] == 1
    credit = credit_of({"math": algorithm(loss="reinforce")}, mini_batches=5)
    credit.advantages(batch)
    (mini_batch,) = credit.mini_batches(batch, 0)
    assert {int(batch.rollout_group[batch.segment_rollout[s]]) for s in mini_batch.segments} == {1}


def test_an_empty_batch_has_no_mini_batches(algorithm):
    batch = batch_of([], ["math"])
    credit = credit_of({"math": algorithm()})
    assert credit.advantages(batch) == {"rollout/singleton_groups": 0.0}
    assert credit.mini_batches(batch, 0) == []


# --- invariance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_the_whole_objective_is_invariant_to_the_split(agg, algorithm, make_batch, evaluate):
    batch = make_batch({"a": 2, "b": 2}, "old_logprobs", "ref_logprobs", "values")
    algorithms = {
        "a": algorithm(agg=agg, kl={"coef": 0.1}, entropy_coef=0.01, correction={"kind": "seq_tis"}),
        "b": algorithm(agg="token-mean", advantage="gae", loss="gspo", weight=2.0),
    }
    credit = credit_of(algorithms, mini_batches=2)
    credit.advantages(batch)
    for mini_batch in credit.mini_batches(batch, 0):
        value, grad, metrics = evaluate(batch, mini_batch)
        outside = ~np.isin(batch.token_segment, mini_batch.segments) | ~batch.loss_mask
        assert not grad[outside].any()
        assert grad.any()
        for splits in (2, len(mini_batch.segments)):
            other_value, other_grad, other_metrics = evaluate(batch, mini_batch, splits)
            np.testing.assert_allclose(other_grad, grad, rtol=0, atol=1e-10)
            assert other_value == pytest.approx(value, abs=1e-9)
            assert other_metrics == pytest.approx(metrics, rel=1e-4, abs=1e-7)
