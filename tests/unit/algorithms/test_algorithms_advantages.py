"""Advantage estimators against golden values, and the properties each of them owes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.builtin.advantages.dr_grpo import DrGrpo
from roll_core.builtin.advantages.gae import Gae
from roll_core.builtin.advantages.grpo import Grpo
from roll_core.builtin.advantages.max_rl import MaxRl
from roll_core.builtin.advantages.opo import Opo
from roll_core.builtin.advantages.reinforce import Reinforce
from roll_core.builtin.advantages.reinforce_pp import ReinforcePP
from roll_core.builtin.advantages.reinforce_pp_baseline import ReinforcePPBaseline
from roll_core.builtin.advantages.remax import Remax
from roll_core.builtin.advantages.rloo import Rloo
from roll_core.errors import BackendError, GroupError
from roll_core.types import AdvantageInputs

REWARDS = [1.0, 0.0, 0.0, 0.5]
MASKS = [[0, 0] + [1] * n for n in (10, 20, 30, 40)]
GAP = [1, 1, 0, 0, 1, 1]
SAMPLED = np.array(GAP, bool)
VALUES = np.array([0.1, 0.2, 9, 9, 0.3, 0.4], np.float32)

GROUP_LOCAL = [Grpo(), Grpo(ddof=0), Grpo(normalize_by_std=False), DrGrpo(), Rloo(), Opo(), MaxRl()]
GROUP_CENTRED = [*GROUP_LOCAL, Grpo(scale="batch")]


def per_rollout(inputs: AdvantageInputs, advantages: np.ndarray) -> np.ndarray:
    """The one value every sampled token of a rollout carries."""
    out = []
    for b in range(len(inputs.rewards)):
        values = np.unique(advantages[(inputs.token_rollout == b) & inputs.response_mask])
        assert len(values) == 1
        out.append(values[0])
    return np.array(out)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (Grpo(), "G1 grpo ddof1 eps1e-6"),
        (Grpo(ddof=0), "G1 grpo ddof0 eps1e-6"),
        (Grpo(eps=1e-4), "G1 grpo TRL ddof1 eps1e-4"),
        (Grpo(scale="batch"), "G1 grpo ddof1 eps1e-6"),
        (Grpo(normalize_by_std=False), "G1 dr_grpo (no std)"),
        (DrGrpo(), "G1 dr_grpo (no std)"),
        (Rloo(), "G1 rloo"),
        (Rloo(), "G1 rloo check G/(G-1)(r-m)"),
        (Opo(), "G1 opo adv"),
        (MaxRl(), "G1 maxrl (eps 0)"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_golden_group_estimators(estimator, name, golden, advantage_inputs):
    inputs = advantage_inputs(REWARDS, [0] * 4, MASKS)
    advantages = estimator(inputs).advantages
    assert advantages.dtype == np.float32
    np.testing.assert_allclose(per_rollout(inputs, advantages), golden(name), rtol=1e-6)
    assert not advantages[~inputs.response_mask].any()


def test_golden_reinforce_pp_baseline(golden, advantage_inputs):
    inputs = advantage_inputs(REWARDS, [0] * 4, [[1], [1, 1], [1], [1, 1]])
    ours = per_rollout(inputs, ReinforcePPBaseline()(inputs).advantages)
    np.testing.assert_allclose(ours, golden("G1 rf++baseline token-whiten per seq (ddof1,1e-8)"), rtol=1e-6)
    ours = per_rollout(inputs, ReinforcePPBaseline(ddof=0, eps=0.0)(inputs).advantages)
    np.testing.assert_allclose(ours, golden("same ddof0 (OpenRLHF/NeMo)"), rtol=1e-6)


def test_golden_gae(golden, advantage_inputs):
    inputs = advantage_inputs([1.0], [0], [GAP], values=VALUES)
    for gap, name in (("skip", "GAE skip-gap (verl, AReaL, NeMo)"), ("zero", "GAE zero-outside-mask (OpenRLHF)")):
        result = Gae(gap=gap, whiten=False)(inputs)
        np.testing.assert_allclose(result.advantages[SAMPLED], golden(name)[SAMPLED], rtol=1e-6)
        np.testing.assert_allclose(result.returns[SAMPLED], (golden(name) + VALUES)[SAMPLED], rtol=1e-6)
        assert not result.advantages[~SAMPLED].any()
        assert not result.returns[~SAMPLED].any()
    everything = advantage_inputs([1.0], [0], [[1] * 6], values=VALUES)
    ours = Gae(whiten=False)(everything).advantages
    np.testing.assert_allclose(ours, golden("GAE no mask (SkyRL)"), rtol=1e-6)


def test_golden_discounted_returns(golden, advantage_inputs):
    inputs = advantage_inputs([1.0], [0], [GAP])
    for gap, name in (
        ("carry", "RF++ return gamma=.9 carry (verl)"),
        ("decay", "RF++ decay-through (OpenRLHF)"),
    ):
        ours = Reinforce(gamma=0.9, gap=gap)(inputs).advantages
        np.testing.assert_allclose(ours[SAMPLED], golden(name)[SAMPLED], rtol=1e-6)
        whitened = ReinforcePP(gamma=0.9, gap=gap)(inputs).advantages
        values = golden(name)[SAMPLED]
        np.testing.assert_allclose(whitened[SAMPLED], (values - values.mean()) / values.std(ddof=1), rtol=1e-5)


def test_scans_agree_with_a_plain_loop_over_ragged_rollouts(advantage_inputs):
    rng = np.random.default_rng(0)
    masks = [rng.random(n) < 0.6 for n in (1, 7, 30, 4, 12)]
    n = sum(map(len, masks))
    inputs = advantage_inputs(
        rng.normal(size=5), [0, 0, 1, 1, 2], masks, token_rewards=rng.normal(size=n), values=rng.normal(size=n)
    )
    result = Gae(gamma=0.97, lam=0.9, whiten=False)(inputs)
    returns = Reinforce(gamma=0.97)(inputs).advantages
    for b in range(5):
        at = np.flatnonzero((inputs.token_rollout == b) & inputs.response_mask)
        advantage = following = discounted = 0.0
        for k, t in enumerate(at[::-1]):
            reward = inputs.token_rewards[t] + (inputs.rewards[b] if k == 0 else 0.0)
            advantage = reward + 0.97 * following - inputs.values[t] + 0.97 * 0.9 * advantage
            following = inputs.values[t]
            discounted = reward + 0.97 * discounted
            assert result.advantages[t] == pytest.approx(advantage, rel=1e-4, abs=1e-5)
            assert returns[t] == pytest.approx(discounted, rel=1e-4, abs=1e-5)


def test_time_goes_on_from_one_segment_of_a_rollout_to_the_next():
    inputs = AdvantageInputs(
        rewards=np.array([1.0, 5.0], np.float32),
        groups=np.array([0, 1]),
        offsets=np.array([0, 3, 5, 6]),
        segment_rollout=np.array([0, 0, 1]),
        response_mask=np.array([0, 1, 1, 0, 1, 1], bool),
        token_rewards=np.zeros(6, np.float32),
    )
    carried = Reinforce(gamma=0.5)(inputs).advantages
    np.testing.assert_allclose(carried, [0, 0.25, 0.5, 0, 1, 5])
    decayed = Reinforce(gamma=0.5, gap="decay")(inputs).advantages
    np.testing.assert_allclose(decayed, [0, 0.125, 0.25, 0, 1, 5])


def test_gae_with_lambda_one_telescopes_to_return_minus_value(advantage_inputs):
    inputs = advantage_inputs([1.0, 0.5], [0, 0], [[1, 1, 1], [0, 1, 1]], values=np.arange(6) / 10)
    result = Gae(lam=1.0, whiten=False)(inputs)
    np.testing.assert_allclose(result.returns, [1, 1, 1, 0, 0.5, 0.5], rtol=1e-6)


def test_gae_whitens_over_sampled_tokens_and_leaves_returns_alone(advantage_inputs):
    inputs = advantage_inputs([1.0], [0], [GAP], values=VALUES)
    plain, whitened = Gae(whiten=False)(inputs), Gae()(inputs)
    np.testing.assert_array_equal(plain.returns, whitened.returns)
    values = plain.advantages[SAMPLED]
    np.testing.assert_allclose(whitened.advantages[SAMPLED], (values - values.mean()) / values.std(ddof=1), rtol=1e-4)


def test_remax_subtracts_the_greedy_reward_even_from_a_group_of_one(advantage_inputs):
    inputs = advantage_inputs([1.0, 0.25], [0, 1], [[1], [1, 1]], greedy_rewards=np.array([0.5, 0.5], np.float32))
    np.testing.assert_allclose(Remax()(inputs).advantages, [0.5, -0.25, -0.25])


def test_remax_gives_no_credit_where_the_greedy_answer_has_no_score(advantage_inputs):
    inputs = advantage_inputs([1.0, 0.25], [0, 1], [[1], [1]], greedy_rewards=np.array([np.nan, 0.5], np.float32))
    np.testing.assert_allclose(Remax()(inputs).advantages, [0.0, -0.25])


def test_missing_inputs_are_named(advantage_inputs):
    inputs = advantage_inputs([1.0], [0], [[1]])
    with pytest.raises(GroupError, match="greedy_rewards"):
        Remax()(inputs)
    with pytest.raises(BackendError, match="values"):
        Gae()(inputs)
    assert Remax().requirements() == {"greedy_rewards"}
    assert Gae().requirements() == {"values"}


def test_reinforce_batch_baseline(advantage_inputs):
    inputs = advantage_inputs([1.0, 0.0], [0, 1], [[1, 1], [0, 1]])
    np.testing.assert_allclose(Reinforce(baseline="batch")(inputs).advantages, [0.5, 0.5, 0, -0.5])


def test_dense_rewards_count_in_sequence_level_estimators(advantage_inputs):
    dense = np.array([0.25, 0.25, 7.0, 0.0], np.float32)
    inputs = advantage_inputs([0.5, 0.0], [0, 0], [[1, 1], [0, 1]], token_rewards=dense)
    np.testing.assert_allclose(DrGrpo()(inputs).advantages, [0.5, 0.5, 0, -0.5])


def test_max_rl_gives_nothing_to_a_group_that_never_succeeds(advantage_inputs):
    inputs = advantage_inputs([0.0, 0.0, 1.0, -3.0], [0, 0, 1, 1], [[1]] * 4)
    assert not MaxRl()(inputs).advantages.any()


def test_batch_scale_takes_the_spread_of_all_rewards(advantage_inputs):
    rewards = [1.0, 0.0, 4.0, 2.0]
    inputs = advantage_inputs(rewards, [0, 0, 1, 1], [[1]] * 4)
    expected = np.array([0.5, -0.5, 1, -1]) / (np.std(rewards, ddof=1) + 1e-6)
    np.testing.assert_allclose(Grpo(scale="batch")(inputs).advantages, expected, rtol=1e-6)


@pytest.mark.parametrize("estimator", [*GROUP_CENTRED, ReinforcePPBaseline()], ids=repr)
def test_a_group_of_one_gives_zero(estimator, advantage_inputs):
    inputs = advantage_inputs([0.7, 1.0, 0.0], [0, 1, 1], [[1, 1], [1], [1]])
    advantages = estimator(inputs).advantages
    assert not advantages[:2].any()
    assert advantages[2] > 0 > advantages[3]


@pytest.mark.parametrize("estimator", GROUP_CENTRED, ids=repr)
@given(reward=st.floats(-10, 10, width=32), size=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_a_constant_group_gives_zero(estimator, reward, size, advantage_inputs):
    inputs = advantage_inputs([reward] * size, [0] * size, [[0] + [1] * (i + 1) for i in range(size)])
    np.testing.assert_allclose(estimator(inputs).advantages, 0, atol=1e-6)


def test_reinforce_pp_baseline_whitens_without_groups_of_one(advantage_inputs):
    masks = [[1, 1, 1], [1]]
    alone = ReinforcePPBaseline()(advantage_inputs([1.0, 0.0], [0, 0], masks)).advantages
    beside = ReinforcePPBaseline()(advantage_inputs([1.0, 0.0, 0.7], [0, 0, 1], [*masks, [1, 1]])).advantages
    np.testing.assert_array_equal(beside, [*alone, 0, 0])


def test_a_constant_batch_whitens_to_zero(advantage_inputs):
    inputs = advantage_inputs([0.1] * 3, [0, 0, 1], [[1, 1], [1], [1]])
    assert not ReinforcePP()(inputs).advantages.any()
    assert not ReinforcePP(eps=0.0)(inputs).advantages.any()


ALL = [*GROUP_CENTRED, Reinforce(), Reinforce(baseline="batch"), ReinforcePP(), ReinforcePPBaseline(), Remax(), Gae()]


@pytest.mark.parametrize("estimator", ALL, ids=repr)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_permuting_rollouts_permutes_advantages(estimator, data, advantage_inputs):
    count = data.draw(st.integers(2, 6))
    rewards = data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=count, max_size=count))
    groups = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    order = data.draw(st.permutations(range(count)))
    values = [np.linspace(-1, i, n, dtype=np.float32) for i, n in enumerate(lengths)]
    greedy = np.linspace(0, 1, count, dtype=np.float32)

    def run(index):
        inputs = advantage_inputs(
            [rewards[i] for i in index],
            np.unique([groups[i] for i in index], return_inverse=True)[1],
            [[1] * lengths[i] for i in index],
            values=np.concatenate([values[i] for i in index]),
            greedy_rewards=greedy[list(index)],
        )
        return np.split(estimator(inputs).advantages, inputs.offsets[1:-1])

    straight, permuted = run(range(count)), run(order)
    for position, i in enumerate(order):
        np.testing.assert_allclose(permuted[position], straight[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("estimator", GROUP_LOCAL, ids=repr)
def test_groups_do_not_leak_into_one_another(estimator, advantage_inputs):
    masks = [[1], [1, 1], [1], [1, 1, 1]]
    before = estimator(advantage_inputs([1.0, 0.0, 0.5, 0.25], [0, 0, 1, 1], masks)).advantages
    after = estimator(advantage_inputs([1.0, 0.0, -9.0, 30.0], [0, 0, 1, 1], masks)).advantages
    np.testing.assert_array_equal(before[:3], after[:3])
    assert (before[3:] != after[3:]).all()


@pytest.mark.parametrize("estimator", [Grpo(), DrGrpo(), Rloo(), Opo(), ReinforcePPBaseline(), ReinforcePP()], ids=repr)
def test_shifting_all_rewards_changes_nothing(estimator, advantage_inputs):
    masks, groups = [[1], [1, 1], [1], [1, 1, 1]], [0, 0, 1, 1]
    before = estimator(advantage_inputs([1.0, 0.0, 0.5, 0.25], groups, masks)).advantages
    after = estimator(advantage_inputs([9.0, 8.0, 8.5, 8.25], groups, masks)).advantages
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_rollout_without_sampled_tokens_harms_nobody(estimator, advantage_inputs):
    inputs = advantage_inputs(
        [1.0, 0.0, 0.5],
        [0, 0, 0],
        [[1], [0, 0], [1]],
        values=np.zeros(4, np.float32),
        greedy_rewards=np.zeros(3, np.float32),
    )
    advantages = estimator(inputs).advantages
    assert np.isfinite(advantages).all()
    assert not advantages[1:3].any()
