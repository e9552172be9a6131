"""Aggregation, KL, correction, shaping: golden values and identities."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import roll_core.numerics as nm

LP, REF = [-1.0, -2.0, -0.5], [-1.2, -1.5, -0.5]
TRAIN, SAMPLER = np.array([-1.0, -2.0, -0.7, -3.0]), np.array([-1.1, -2.9, -0.7, -1.0])
OFFSETS = np.array([0, 4, 8])
MASK = np.array([1, 1, 1, 1, 1, 1, 0, 0], bool)
LOSS = np.array([1, 1, 1, 1, 2, 2, 0, 0.0])
MODES = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]


# --- aggregation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("token-mean", "agg token-mean"),
        ("seq-mean-token-mean", "agg seq-mean-token-mean"),
        ("seq-mean-token-sum", "agg seq-mean-token-sum"),
        ("dr_grpo", "agg seq-mean-token-sum-norm (Lmax=4)"),
    ],
)
def test_golden_aggregation(mode, name, golden):
    weights = nm.aggregation_weights(mode, MASK, OFFSETS, agg_length=4)
    assert weights.dtype == np.float32
    assert float((weights * LOSS).sum()) == pytest.approx(golden(name)[0], rel=1e-6)
    assert not weights[~MASK].any()


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_weights_match_the_definition(mode, data):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=sum(lengths), max_size=sum(lengths))))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    loss = np.arange(1, sum(lengths) + 1)
    parts = [loss[a:b][mask[a:b]] for a, b, c in zip(offsets, offsets[1:], chosen, strict=False) if c]
    parts = [p for p in parts if len(p)]
    expected = 0.0
    if parts:
        expected = {
            "token-mean": np.concatenate(parts).mean(),
            "seq-mean-token-mean": np.mean([p.mean() for p in parts]),
            "seq-mean-token-sum": np.mean([p.sum() for p in parts]),
            "dr_grpo": np.mean([p.sum() / 7 for p in parts]),
        }[mode]
    weights = nm.aggregation_weights(mode, mask, offsets, chosen, agg_length=7)
    assert float((weights * loss).sum()) == pytest.approx(expected, rel=1e-5)


def test_aggregation_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="constant length"):
        nm.aggregation_weights("dr_grpo", MASK, OFFSETS)
    with pytest.raises(ValueError, match="unknown aggregation 'mean'"):
        nm.aggregation_weights("mean", MASK, OFFSETS)


# --- masked statistics ------------------------------------------------------------------------------------------------


def test_masked_statistics_ignore_what_does_not_count():
    values, mask = torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([True, False, True])
    assert float(nm.masked_sum(values, mask)) == 4
    assert float(nm.masked_mean(values, mask)) == 2
    assert float(nm.masked_mean(values, torch.zeros(3, dtype=torch.bool))) == 0


@pytest.mark.parametrize("ddof", [0, 1])
def test_whiten_in_torch_and_numpy_agree(ddof):
    values, mask = np.array([1.0, 9.0, 2.0, 4.0], np.float32), np.array([1, 0, 1, 1], bool)
    counted = values[mask]
    expected = (counted - counted.mean()) / np.sqrt(counted.var(ddof=ddof) + 1e-8)
    for ours in (
        nm.whiten_array(values, mask, ddof=ddof),
        nm.whiten(torch.tensor(values), torch.tensor(mask), ddof=ddof).numpy(),
    ):
        np.testing.assert_allclose(ours[mask], expected, rtol=1e-5)
        assert ours[1] == 0


def test_whiten_of_nothing_and_of_one_value_is_zero():
    assert not nm.whiten_array(np.ones(2), np.zeros(2, bool)).any()
    assert not nm.whiten_array(np.ones(2), np.array([True, False])).any()
    assert nm.spread(np.array([3.0]), ddof=1) == 0


def test_entropy():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(nm.entropy(logits).numpy(), [np.log(4), 0.0], atol=1e-6)


# --- KL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_golden_kl_values(estimator, golden):
    ours = nm.kl_estimate(torch.tensor(LP).double(), torch.tensor(REF).double(), estimator)
    np.testing.assert_allclose(ours.numpy(), golden(f"KL {estimator}"), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(nm.kl_reward(LP, REF, estimator), golden(f"KL {estimator}"), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_golden_kl_gradients(estimator, golden):
    logprobs = torch.tensor(LP, dtype=torch.float64, requires_grad=True)
    nm.kl_estimate(logprobs, torch.tensor(REF).double(), estimator).sum().backward()
    np.testing.assert_allclose(logprobs.grad.numpy(), golden(f"KL {estimator} grad wrt logp"), rtol=1e-6, atol=1e-7)


def test_unbiased_has_the_value_of_k3_and_is_k1_in_a_reward(golden):
    ours = nm.kl_estimate(torch.tensor(LP).double(), torch.tensor(REF).double(), "unbiased")
    np.testing.assert_allclose(ours.numpy(), golden("KL k3"), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(nm.kl_reward(LP, REF, "unbiased"), golden("KL k1"), rtol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        ("k1", "E[k1-as-loss grad]"),
        ("k2", "E[k2-as-loss grad]"),
        ("k2", "true grad KL(pi||ref) wrt logits"),
        ("k3", "E[k3-as-loss grad]"),
        ("k3", "grad KL(ref||pi)"),
        ("unbiased", "E[w*k3 grad] (w=pi/sg)"),
        ("unbiased", "true grad KL(pi||ref) wrt logits"),
    ],
)
def test_golden_expected_gradient_as_a_loss(estimator, name, golden):
    """Exact enumeration over a categorical: which divergence each estimator descends when samples come from pi."""
    pi, ref = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.4, 0.4, 0.2]).double()
    logits = pi.log().requires_grad_()
    logprobs = torch.log_softmax(logits, 0)
    (pi * nm.kl_estimate(logprobs, ref.log(), estimator)).sum().backward()
    np.testing.assert_allclose(logits.grad.numpy(), golden(name), atol=1e-8)


def test_golden_expected_gradient_as_a_reward(golden):
    """k1 in the reward gives the gradient of the reverse KL; k3 in the reward does not."""
    pi, ref = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])

    def score_function(rewards):
        return sum(pi[a] * rewards[a] * (np.eye(3)[a] - pi) for a in range(3))

    true = golden("true grad KL(pi||ref) wrt logits")
    for estimator in ("k1", "unbiased"):
        ours = score_function(nm.kl_reward(np.log(pi), np.log(ref), estimator))
        np.testing.assert_allclose(ours, true, atol=1e-7)
    biased = score_function(nm.kl_reward(np.log(pi), np.log(ref), "k3"))
    assert np.abs(biased - true).max() > 1e-2


@pytest.mark.parametrize(("function", "zeros"), [(nm.kl_estimate, torch.zeros(1)), (nm.kl_reward, np.zeros(1))])
def test_unknown_estimator(function, zeros):
    with pytest.raises(ValueError, match="unknown KL estimator 'k9'"):
        function(zeros, zeros, "k9")


def test_adaptive_kl_moves_towards_its_target_with_a_bounded_step():
    controller = nm.KLController(coef=0.1, target=0.5, horizon=100)
    controller.update(0.55, count=10)
    assert controller.coef == pytest.approx(0.1 * (1 + 0.1 * 0.1))
    controller = nm.KLController(coef=0.1, target=0.5, horizon=100)
    controller.update(50.0, count=10)
    assert controller.coef == pytest.approx(0.1 * 1.02)
    controller.update(0.0, count=10)
    assert controller.coef == pytest.approx(0.1 * 1.02 * 0.98)
    controller.update(float("nan"), 1)
    assert controller.coef == pytest.approx(0.1 * 1.02 * 0.98)
    other = nm.KLController(coef=9.0, target=0.5, horizon=100)
    other.load_state_dict(controller.state_dict())
    assert other.coef == controller.coef


# --- value ------------------------------------------------------------------------------------------------------------


def test_value_loss_clips_pessimistically():
    values = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    old, returns = torch.tensor([0.0, 0.0, 0.4]).double(), torch.tensor([1.0, 1.0, 1.0]).double()
    loss = nm.value_loss(values, old, returns, clip=0.2)
    np.testing.assert_allclose(loss.detach().numpy(), [0.5, 0.32, 0.125])
    loss.sum().backward()
    np.testing.assert_allclose(values.grad.numpy(), [-1.0, 0.0, -0.5])
    plain = nm.value_loss(values.detach(), old, returns, clip=0)
    np.testing.assert_allclose(plain.numpy(), [0.5, 0.0, 0.125])


# --- correction and mismatch ------------------------------------------------------------------------------------------


def correct(kind, low=0.0, high=2.0, mask=None):
    mask = np.ones(4, bool) if mask is None else mask
    return nm.correction_weights(kind, TRAIN, SAMPLER, mask, np.array([0, 4]), low=low, high=high)


def test_golden_corrections(golden):
    np.testing.assert_allclose(correct("token_tis"), golden("token TIS C=2"), rtol=1e-6)
    np.testing.assert_allclose(correct("token_mask", 0.5, 5), golden("token IcePop [.5,5]"), rtol=1e-6)
    np.testing.assert_allclose(correct("seq_tis"), golden("seq TIS C=2")[0], rtol=1e-6)
    np.testing.assert_allclose(correct("seq_mask", 0.3, 5), golden("seq product")[0], rtol=1e-6)
    assert not correct("seq_mask", 0.4, 5).any()
    raw = golden("w=pi_train/pi_rollout")
    geometric = golden("geo mean")[0]
    np.testing.assert_allclose(correct("geo_mask", geometric - 0.01, 5), raw, rtol=1e-6)
    assert not correct("geo_mask", geometric + 0.01, 5).any()
    np.testing.assert_array_equal(correct("none"), np.ones(4))


def test_correction_sees_counted_tokens_only():
    mask = np.array([1, 1, 1, 0], bool)
    weights = correct("seq_tis", high=100.0, mask=mask)
    np.testing.assert_allclose(weights[:3], np.exp((TRAIN - SAMPLER)[:3].sum()), rtol=1e-6)
    assert weights[3] == 1
    with pytest.raises(ValueError, match="unknown correction 'tis'"):
        correct("tis")


def test_golden_effective_sample_size(golden):
    ours = nm.effective_sample_size(golden("token TIS C=2"))
    assert ours == pytest.approx(golden("ESS (verl: 1/mean((w/mean)^2)) token TIS")[0], rel=1e-6)
    assert nm.effective_sample_size(np.ones(5)) == pytest.approx(1.0)
    assert nm.effective_sample_size(np.zeros(5)) == 0.0


def test_mismatch_metrics():
    metrics = nm.mismatch_metrics(TRAIN, SAMPLER, np.ones(4, bool))
    w = np.exp(TRAIN - SAMPLER)
    assert metrics["mismatch_abs"] == pytest.approx(np.abs(TRAIN - SAMPLER).mean())
    assert metrics["mismatch_k3"] == pytest.approx((w - 1 - np.log(w)).mean())
    assert metrics["mismatch_max_weight"] == pytest.approx(w.max())
    assert metrics["mismatch_ess"] == pytest.approx(nm.effective_sample_size(w))
    assert metrics["mismatch_outside"] == pytest.approx(0.25)
    same = nm.mismatch_metrics(TRAIN, TRAIN, np.ones(4, bool))
    assert same == {
        "mismatch_abs": 0.0,
        "mismatch_k3": 0.0,
        "mismatch_max_weight": 1.0,
        "mismatch_ess": 1.0,
        "mismatch_outside": 0.0,
    }
    assert nm.mismatch_metrics(TRAIN, SAMPLER, np.zeros(4, bool)) == {}


# --- shaping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [8, 12, 14, 16, 20])
def test_golden_overlong(length, golden):
    ours = nm.overlong_penalty(length, max_length=16, buffer=8, capped=False)
    assert ours == pytest.approx(golden(f"overlong verl/AReaL Lmax16 buf8 len{length}")[0])


def test_overlong_is_capped_by_default_and_off_without_buffer(golden):
    expected = golden("overlong OpenRLHF capped len20")[0]
    assert nm.overlong_penalty(20, max_length=16, buffer=8) == pytest.approx(expected)
    assert nm.overlong_penalty(20, max_length=16, buffer=0) == 0
    assert nm.overlong_penalty(14, max_length=16, buffer=8, penalty=2.0) == pytest.approx(-1.5)


# --- the package ------------------------------------------------------------------------------------------------------


def test_numerics_credit_and_advantages_import_without_torch():
    code = (
        "import sys, roll_core.numerics, roll_core.credit, roll_core.builtin.advantages.gae; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_every_public_name_resolves():
    assert all(getattr(nm, name) is not None for name in nm.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = nm.nothing
