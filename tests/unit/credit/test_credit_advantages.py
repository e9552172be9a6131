"""Shaping, advantages, correction columns and metrics."""

from __future__ import annotations

import numpy as np
import pytest

from roll_core.config.schema import CriticConfig
from roll_core.credit import Credit, greedy_rewards
from roll_core.errors import BackendError, CheckpointError, ComponentError, ConfigError
from roll_core.numerics import correction_weights, kl_reward
from roll_core.types import Advantages, ColumnSpec, SamplingParams, batch_of


def credit_of(algorithms, **values):
    values = {"mini_batches": 1, "epochs": 1, "seed": 0, "critic": CriticConfig(), **values}
    return Credit(algorithms, **values)


def advantage_of(batch, b):
    return np.unique(batch.columns["advantages"][(batch.token_rollout == b) & batch.response_mask])


# --- shaping ----------------------------------------------------------------------------------------------------------


def test_overlong_penalty_becomes_a_reward_record_once(algorithm, group):
    credit = credit_of({"math": algorithm(overlong={"buffer": 8, "penalty": 2.0})})
    groups = [group(0, "math", [(0.5, 8), (0.5, 12), (0.5, 16), (None, 16)])]
    credit.shape_rewards(groups)
    credit.shape_rewards(groups)
    assert [r.reward for r in groups[0].scored] == pytest.approx([0.5, -0.5, -1.5])
    records = groups[0].rollouts[1].rewards
    assert [(r.component, r.value) for r in records] == [("verdict", 0.5), ("overlong", -1.0)]
    assert groups[0].rollouts[3].rewards == []


def test_overlong_reaches_the_greedy_baseline(algorithm, group, rollout):
    credit = credit_of({"math": algorithm(overlong={"buffer": 8})})
    one = group(0, "math", [(0.5, 8)])
    one.greedy = rollout(one.ticket, -1, 0.75, 12)
    other = group(1, "math", [(0.5, 8), (None, 1), (0.5, 8)])
    credit.shape_rewards([one, other])
    np.testing.assert_allclose(greedy_rewards([other, one]), [0.25, np.nan, np.nan])


def test_overlong_mask_takes_truncated_answers_out_of_the_loss_but_not_out_of_the_statistics(algorithm, group):
    credit = credit_of({"math": algorithm(overlong={"mask": True}, advantage="dr_grpo")})
    groups = [group(0, "math", [(1.0, 2), (0.0, 4)])]
    groups[0].rollouts[1].finish_reason = "length"
    credit.shape_rewards(groups)
    batch = batch_of(groups, ["math"])
    credit.advantages(batch)
    assert advantage_of(batch, 0) == pytest.approx([0.5])
    (mini_batch,) = credit.mini_batches(batch, 0)
    weights = mini_batch.terms[0].weights
    np.testing.assert_allclose(weights[batch.token_rollout == 0], [0, 0, 0.5, 0.5])
    assert not weights[batch.token_rollout == 1].any()


# --- advantages -------------------------------------------------------------------------------------------------------


def test_each_domain_has_its_own_estimator(algorithm, group):
    credit = credit_of({"a": algorithm(advantage="dr_grpo"), "b": algorithm(advantage="rloo")})
    groups = [group(0, "a", [(1.0, 1), (0.0, 2)]), group(1, "b", [(1.0, 1), (0.0, 2)])]
    batch = batch_of(groups, ["a", "b"])
    credit.advantages(batch)
    assert [float(advantage_of(batch, b)[0]) for b in range(4)] == pytest.approx([0.5, -0.5, 1.0, -1.0])


def test_domains_with_one_estimator_share_its_batch_statistics(algorithm, group):
    groups = [group(0, "a", [(1.0, 1), (0.0, 1)]), group(1, "b", [(0.5, 1), (0.0, 1)])]
    shared, apart = batch_of(groups, ["a", "b"]), batch_of(groups, ["a", "b"])
    credit_of({"a": algorithm(advantage="reinforce_pp"), "b": algorithm(advantage="reinforce_pp")}).advantages(shared)
    other = algorithm(advantage={"use": "reinforce_pp", "eps": 1e-9})
    credit_of({"a": algorithm(advantage="reinforce_pp"), "b": other}).advantages(apart)
    at = shared.response_mask
    assert shared.columns["advantages"][at].mean() == pytest.approx(0, abs=1e-6)
    assert shared.columns["advantages"][at].std(ddof=1) == pytest.approx(1, rel=1e-5)
    assert apart.columns["advantages"][at][:2].mean() == pytest.approx(0, abs=1e-6)
    assert shared.columns["advantages"][at][:2].mean() > 0.1


def test_singleton_groups_are_counted_and_unscored_rollouts_leave_first(algorithm, group):
    credit = credit_of({"math": algorithm()})
    groups = [group(0, "math", [(1.0, 1), (None, 3)])]
    groups += [group(i, "math", [(1.0, 1), (0.0, 1)]) for i in (1, 2)]
    batch = batch_of(groups, ["math"])
    metrics = credit.advantages(batch)
    assert metrics["rollout/singleton_groups"] == 1
    assert advantage_of(batch, 0) == [0.0]
    assert metrics["policy/advantage_zero_share"] == pytest.approx(1 / 5)


def test_kl_in_the_reward_reaches_the_totals(algorithm, make_batch):
    credit = credit_of({"math": algorithm(advantage="reinforce", kl={"coef": 0.5, "where": "reward"})})
    batch = make_batch({"math": 2}, "old_logprobs", "ref_logprobs")
    metrics = credit.advantages(batch)
    kl = kl_reward(batch.columns["old_logprobs"], batch.columns["ref_logprobs"], "k1")
    first = np.flatnonzero((batch.token_rollout == 0) & batch.response_mask)
    expected = batch.rewards[0] - 0.5 * kl[first][::-1].cumsum()[::-1]
    np.testing.assert_allclose(batch.columns["advantages"][first], expected, rtol=1e-5)
    assert metrics["policy/kl"] == pytest.approx(kl[batch.response_mask].mean(), rel=1e-5)
    assert metrics["policy/kl/math"] == metrics["policy/kl"]
    assert metrics["policy/kl_coef/math"] == 0.5
    terms = credit.mini_batches(batch, 0)[0].terms
    assert [t.name for t in terms] == ["policy"]


def test_remax_reads_a_column_of_level_rollout(algorithm, make_batch):
    credit = credit_of({"math": algorithm(advantage="remax")})
    batch = make_batch({"math": 1})
    greedy = np.array([0.5, 0.5, np.nan], np.float32)
    batch.add("greedy_rewards", greedy, ColumnSpec("greedy_rewards", level="rollout"))
    metrics = credit.advantages(batch)
    ours = [float(advantage_of(batch, b)[0]) for b in range(3)]
    assert ours == pytest.approx([batch.rewards[0] - 0.5, batch.rewards[1] - 0.5, 0.0])
    assert metrics["rollout/missing_baselines"] == 1


def test_gae_adds_returns_and_reports_the_critic(algorithm, make_batch):
    credit = credit_of({"a": algorithm(advantage="gae"), "b": algorithm()})
    batch = make_batch({"a": 2, "b": 2}, "values")
    metrics = credit.advantages(batch)
    in_b = batch.token_domain == 1
    assert batch.columns["returns"][batch.response_mask & ~in_b].any()
    assert not batch.columns["returns"][in_b].any()
    assert metrics["train/value_explained_variance"] <= 1


def test_an_estimator_gets_any_column_it_requires_cut_to_its_rollouts(algorithm, make_batch):
    class Column:
        def requirements(self):
            return {"logprobs@teacher", "rollout_logprobs"}

        def __call__(self, inputs):
            return np.where(inputs.response_mask, inputs.columns["logprobs@teacher"], 0.0)

    credit = credit_of({"a": algorithm(), "b": algorithm(advantage={"use": Column()})})
    batch = make_batch({"a": 1, "b": 1}, "logprobs@teacher")
    credit.advantages(batch)
    at = (batch.token_domain == 1) & batch.response_mask
    np.testing.assert_array_equal(batch.columns["advantages"][at], batch.columns["logprobs@teacher"][at])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda i: np.zeros(3), r"returned shape \(3,\)"),
        (lambda i: np.full(len(i.response_mask), np.nan), "not finite"),
        (lambda i: Advantages(np.zeros(len(i.response_mask), np.float32), np.zeros(1, np.float32)), "returns returned"),
        (lambda i: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_faulty_estimator_is_named(result, message, algorithm, make_batch):
    credit = credit_of({"math": algorithm(advantage={"use": result})})
    with pytest.raises(ComponentError, match=message) as caught:
        credit.advantages(make_batch({"math": 1}))
    assert "math" in str(caught.value)


def test_a_missing_column_or_algorithm_is_named(algorithm, make_batch):
    with pytest.raises(KeyError, match="values"):
        credit_of({"math": algorithm(advantage="gae")}).advantages(make_batch({"math": 1}))
    with pytest.raises(ConfigError, match="no algorithm for domain 'code'"):
        credit_of({"math": algorithm()}).advantages(make_batch({"code": 1}))


# --- correction and mismatch ------------------------------------------------------------------------------------------


def test_correction_is_a_column_and_follows_the_domain(algorithm, make_batch):
    correction = {"kind": "token_mask", "low": 0.8, "high": 1.25}
    credit = credit_of({"a": algorithm(correction=correction), "b": algorithm()})
    batch = make_batch({"a": 2, "b": 2}, "old_logprobs")
    metrics = credit.advantages(batch)
    expected = correction_weights(
        "token_mask",
        batch.columns["old_logprobs"],
        batch.rollout_logprobs,
        batch.loss_mask,
        batch.offsets,
        low=0.8,
        high=1.25,
    )
    in_a = batch.token_domain == 0
    np.testing.assert_array_equal(batch.columns["correction"], np.where(in_a, expected, 1.0))
    assert metrics["policy/correction_rejected/a"] > 0
    assert metrics["policy/correction_rejected/b"] == 0


def test_mismatch_is_measured_before_the_update_where_old_logprobs_exist(algorithm, make_batch, evaluate):
    credit = credit_of({"a": algorithm(), "b": algorithm()}, epochs=2)
    batch = make_batch({"a": 1, "b": 1}, "old_logprobs")
    metrics = credit.advantages(batch)
    for name in ("mismatch_abs", "mismatch_k3", "mismatch_max_weight", "mismatch_ess", "mismatch_outside"):
        assert {f"policy/{name}", f"policy/{name}/a", f"policy/{name}/b"} <= metrics.keys()
    _, _, update = evaluate(batch, credit.mini_batches(batch, 0)[0])
    assert not any("mismatch" in name for name in update)


def test_mismatch_is_measured_in_the_update_otherwise(algorithm, make_batch, evaluate):
    credit = credit_of({"a": algorithm(), "b": algorithm()})
    batch = make_batch({"a": 2, "b": 1})
    assert not any("mismatch" in name for name in credit.advantages(batch))
    _, _, update = evaluate(batch, credit.mini_batches(batch, 0)[0])
    counts = [(batch.loss_mask & (batch.token_domain == d)).sum() for d in (0, 1)]
    for name in ("mismatch_abs", "mismatch_k3", "mismatch_outside"):
        parts = [update[f"policy/{name}/a"], update[f"policy/{name}/b"]]
        assert update[f"policy/{name}"] == pytest.approx(np.average(parts, weights=counts), rel=1e-5, abs=1e-9)
    assert update["policy/mismatch_abs"] > 0


# --- adaptive KL ------------------------------------------------------------------------------------------------------


def test_adaptive_kl_follows_each_domain_and_survives_a_restart(algorithm, make_batch, evaluate):
    adaptive = {"coef": 0.1, "adaptive": {"target": 0.01, "horizon": 10}}
    algorithms = {"a": algorithm(kl=adaptive), "b": algorithm(kl={"coef": 0.2})}
    credit = credit_of(algorithms)
    batch = make_batch({"a": 2, "b": 1}, "ref_logprobs")
    metrics = credit.advantages(batch)
    _, _, update = evaluate(batch, credit.mini_batches(batch, 0)[0])
    assert update["policy/kl/a"] >= 0
    assert update["policy/kl/a"] != update["policy/kl/b"]
    error = np.clip(update["policy/kl/a"] / 0.01 - 1, -0.2, 0.2)
    credit.observe(metrics | update, batch)
    assert credit.kl_coefs == {"a": pytest.approx(0.1 * (1 + error * 6 / 10)), "b": 0.2}
    restored = credit_of(algorithms)
    restored.load_state_dict(credit.state_dict())
    assert restored.kl_coefs == credit.kl_coefs
    with pytest.raises(BackendError, match="policy/kl/a"):
        credit.observe({}, batch)
    batch.loss_mask &= batch.token_domain == 1
    credit.observe({}, batch)
    assert restored.kl_coefs == credit.kl_coefs
    with pytest.raises(CheckpointError, match=r"adapts the KL coefficient of \['a'\]"):
        credit_of({"a": algorithm(), "b": algorithm()}).load_state_dict(credit.state_dict())


def test_kl_uses_full_logprobs_where_sampling_is_truncated(algorithm, make_batch):
    credit = credit_of({"math": algorithm(kl={"coef": 0.1})})
    batch = make_batch({"math": 1}, "ref_logprobs")
    credit.advantages(batch)
    (_, kl) = credit.mini_batches(batch, 0)[0].terms
    assert kl.needs == {"logprobs"}
    batch.sampling["math"] = SamplingParams(top_p=0.9)
    (_, kl) = credit.mini_batches(batch, 0)[0].terms
    assert kl.needs == {"full_logprobs"}
