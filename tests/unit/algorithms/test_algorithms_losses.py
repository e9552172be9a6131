"""Policy losses: golden values, gradients against finite differences of independent formulas, masks, invariance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from roll_core.builtin.policy_losses.cispo import Cispo
from roll_core.builtin.policy_losses.decoupled_ppo import DecoupledPpo
from roll_core.builtin.policy_losses.dppo import Dppo
from roll_core.builtin.policy_losses.gmpo import Gmpo
from roll_core.builtin.policy_losses.gspo import Gspo
from roll_core.builtin.policy_losses.ppo_clip import PpoClip
from roll_core.builtin.policy_losses.reinforce import ReinforceLoss
from roll_core.builtin.policy_losses.sapo import Sapo
from roll_core.builtin.policy_losses.topr import Topr
from roll_core.errors import ConfigError
from roll_core.numerics import aggregation_weights

OLD = [-1.0, -1.0, -1.0, -1.0]
NEW = [-0.6, -1.5, -0.5, -2.5]
A = [1.0, 1.0, -1.0, -1.0]
ALL = [
    ReinforceLoss(),
    PpoClip(),
    PpoClip(clip_low=0.2, clip_high=0.28, dual_clip=3.0, delta=4.0),
    Gspo(clip_low=0.1, clip_high=0.1),
    Cispo(),
    Cispo(clip_low=0.2, clip_high=0.28),
    Topr(),
    Gmpo(),
    Sapo(),
    Dppo(),
    Dppo(divergence="binary_kl"),
    DecoupledPpo(),
    DecoupledPpo(cap=1.2, above_cap="drop"),
]
AGGREGATIONS = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (PpoClip(clip_low=0.2, clip_high=0.28), "PPO clip-higher token loss (.2/.28)"),
        (Cispo(clip_low=0.2, clip_high=0.28), "CISPO token loss verl [.8,1.28]"),
        (Cispo(), "CISPO TRL max=5 only"),
        (Sapo(), "SAPO token loss"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_golden_token_losses(loss, name, golden, loss_inputs):
    values = loss(loss_inputs(NEW, A, old_logprobs=OLD))
    np.testing.assert_allclose(values.numpy(), golden(name), rtol=1e-7)


def test_golden_dual_clip(golden, loss_inputs):
    new = np.log([1.0, 1.0, 5.0, 1.0]) - 1
    values = PpoClip(clip_low=0.2, clip_high=0.28, dual_clip=3.0)(loss_inputs(new, A, old_logprobs=OLD))
    np.testing.assert_allclose(values.numpy(), golden("dual clip c=3, ratios 1,1,5,1"), rtol=1e-7)


def test_golden_sapo_gate_and_ppo_ratio_are_reported(golden, loss_inputs):
    inputs = loss_inputs(NEW, A, old_logprobs=OLD)
    Sapo()(inputs)
    total, count = inputs.metrics["policy/gate"]
    assert float(total / count) == pytest.approx(golden("SAPO gate").mean(), rel=1e-6)
    total, count = inputs.metrics["policy/ratio"]
    assert float(total / count) == pytest.approx(golden("PPO ratio").mean(), rel=1e-6)


def test_golden_sequence_ratios(golden, loss_inputs):
    mask = [True, True, True, False]
    inputs = loss_inputs(NEW, [1.0] * 4, old_logprobs=OLD, mask=mask)
    ratio = float(golden("GSPO s_i (first 3 tokens)")[0])
    np.testing.assert_allclose(Gspo(clip_low=0.5, clip_high=0.5)(inputs).numpy()[:3], -ratio, rtol=1e-7)
    np.testing.assert_allclose(Gspo(clip_high=0.1)(inputs).numpy()[:3], -1.1, rtol=1e-7)
    geometric = float(golden("GMPO ratio A>0, clip .4/.4 in log space")[0])
    np.testing.assert_allclose(Gmpo()(inputs).numpy()[:3], -geometric, rtol=1e-7)


def test_golden_dppo_drops_by_probability_distance(golden, loss_inputs):
    distance = golden("DPPO p-mu")  # 0.18, -0.14, 0.24, -0.29
    inputs = loss_inputs(NEW, A, rollout_logprobs=OLD)
    ratio = np.exp(np.array(NEW) - np.array(OLD))
    for bound in (0.15, 0.2, 0.25, 0.3):
        dropped = ((np.array(A) > 0) & (distance > bound)) | ((np.array(A) < 0) & (distance < -bound))
        expected = np.where(dropped, 0.0, -ratio * np.array(A) * np.array(NEW))
        ours = Dppo(clip_low=bound, clip_high=bound)(inputs).numpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-7)


def test_dppo_caps_its_weight_and_binary_kl_matches_its_formula(loss_inputs):
    inputs = loss_inputs([-0.5, -0.5], [-1.0, -1.0], rollout_logprobs=[-10.0, -0.6])
    ours = Dppo(clip_low=1.0, clip_high=1.0)(inputs).numpy()
    np.testing.assert_allclose(ours, [-20.0 * 0.5, -np.exp(0.1) * 0.5], rtol=1e-7)
    p, q = np.exp(-1.2), np.exp(-0.4)
    kl = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    inputs = loss_inputs([-1.2], [-1.0], rollout_logprobs=[-0.4])
    assert float(Dppo(divergence="binary_kl", clip_low=kl * 1.01)(inputs)) != 0
    assert float(Dppo(divergence="binary_kl", clip_low=kl * 0.99)(inputs)) == 0


def test_two_sided_clip_bounds_what_a_negative_advantage_can_do(loss_inputs):
    inputs = loss_inputs([2.0], [-1.0], old_logprobs=[0.0])
    assert float(PpoClip()(inputs)) == pytest.approx(np.exp(2.0))
    assert float(PpoClip(delta=3.0)(inputs)) == pytest.approx(3.0)
    with pytest.raises(ConfigError, match=r"delta=1\.1 must be above"):
        PpoClip(delta=1.1)


def test_topr_tapers_negatives_by_their_sequence_ratio_only(loss_inputs):
    inputs = loss_inputs([-1.0, -2.0, -1.0, -2.0], [1.0, 1.0, -1.0, -1.0], old_logprobs=[-0.5] * 4, lengths=[2, 2])
    ours = Topr()(inputs).numpy()
    np.testing.assert_allclose(ours, [1.0, 2.0, -np.exp(-2.0), -2 * np.exp(-2.0)], rtol=1e-7)
    up = loss_inputs([-0.1, -0.1], [-1.0, -1.0], old_logprobs=[-0.5] * 2)
    np.testing.assert_allclose(Topr()(up).numpy(), [-0.1, -0.1], rtol=1e-7)


def test_decoupled_ppo_weighs_by_the_behaviour_policy(loss_inputs):
    inputs = loss_inputs([-1.0, -1.0], [1.0, 1.0], old_logprobs=[-1.1, -1.1], rollout_logprobs=[-1.3, -4.0])
    ratio = np.exp(0.1)
    np.testing.assert_allclose(DecoupledPpo()(inputs).numpy(), [-np.exp(0.2) * ratio, -5 * ratio], rtol=1e-7)
    dropping = DecoupledPpo(above_cap="drop")(inputs).numpy()
    np.testing.assert_allclose(dropping, [-np.exp(0.2) * ratio, 0.0], rtol=1e-7)


# --- gradients --------------------------------------------------------------------------------------------------------
#
# Each formula is written once more in numpy as f(x, z): z stands where the paper has a stop-gradient. Finite
# differences in x at x = z are the gradient the implementation must have.

LENGTHS = [3, 1, 4, 2]
ADVANTAGES = np.repeat([1.3, -0.7, -1.1, 0.6], LENGTHS)


def toy(seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    n = sum(LENGTHS)
    x = -1.2 + scale * rng.normal(size=n)
    mask = np.ones(n, bool)
    mask[[0, 5]] = False
    return x, x + scale * rng.normal(size=n), x + scale * rng.normal(size=n), mask


def seg_mean(values, mask):
    segment = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    total = np.bincount(segment, values * mask) / np.maximum(np.bincount(segment, mask), 1)
    return total[segment]


def seg_sum(values, mask):
    segment = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    return np.bincount(segment, values * mask)[segment]


def clip_loss(ratio, low, high):
    return np.maximum(-ADVANTAGES * ratio, -ADVANTAGES * np.clip(ratio, 1 - low, 1 + high))


def dppo_keep(z, mu, divergence):
    p, q = np.exp(z), np.exp(mu)
    if divergence == "tv":
        moved, bound = np.abs(p - q), 0.15
    else:
        moved, bound = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)), 0.05
    return ~(((ADVANTAGES > 0) & (p > q) | (ADVANTAGES < 0) & (p < q)) & (moved > bound))


FORMULAS = [
    (ReinforceLoss(), lambda x, z, old, mu, m: -ADVANTAGES * x),
    (PpoClip(), lambda x, z, old, mu, m: clip_loss(np.exp(x - old), 0.2, 0.2)),
    (
        PpoClip(clip_low=0.2, clip_high=0.28, dual_clip=1.5),
        lambda x, z, old, mu, m: np.where(
            ADVANTAGES < 0,
            np.minimum(clip_loss(np.exp(x - old), 0.2, 0.28), -1.5 * ADVANTAGES),
            clip_loss(np.exp(x - old), 0.2, 0.28),
        ),
    ),
    (
        Gspo(clip_low=0.1, clip_high=0.1),
        lambda x, z, old, mu, m: clip_loss(np.exp(seg_mean(z - old, m)) * np.exp(x - z), 0.1, 0.1),
    ),
    (Cispo(), lambda x, z, old, mu, m: -np.minimum(np.exp(z - old), 5.0) * ADVANTAGES * x),
    (
        Cispo(clip_low=0.2, clip_high=0.28),
        lambda x, z, old, mu, m: -np.clip(np.exp(z - old), 0.8, 1.28) * ADVANTAGES * x,
    ),
    (
        Topr(),
        lambda x, z, old, mu, m: (
            -np.where(ADVANTAGES < 0, np.minimum(np.exp(seg_sum(z - old, m)), 1), 1) * ADVANTAGES * x
        ),
    ),
    (
        Gmpo(clip_low=0.3, clip_high=0.2),
        lambda x, z, old, mu, m: (
            -ADVANTAGES
            * np.exp(
                seg_mean(
                    np.sign(ADVANTAGES)
                    * np.minimum(np.sign(ADVANTAGES) * (x - old), np.sign(ADVANTAGES) * np.clip(x - old, -0.3, 0.2)),
                    m,
                )
            )
        ),
    ),
    (
        Sapo(),
        lambda x, z, old, mu, m: (
            -ADVANTAGES
            * 4
            / np.where(ADVANTAGES > 0, 1.0, 1.05)
            / (1 + np.exp(-np.where(ADVANTAGES > 0, 1.0, 1.05) * (np.exp(x - old) - 1)))
        ),
    ),
    (Dppo(), lambda x, z, old, mu, m: -1.0 * dppo_keep(z, mu, "tv") * np.exp(z - mu) * ADVANTAGES * x),
    (
        Dppo(divergence="binary_kl"),
        lambda x, z, old, mu, m: -1.0 * dppo_keep(z, mu, "binary_kl") * np.exp(z - mu) * ADVANTAGES * x,
    ),
    (
        DecoupledPpo(cap=1.3),
        lambda x, z, old, mu, m: np.minimum(np.exp(old - mu), 1.3) * clip_loss(np.exp(x - old), 0.2, 0.2),
    ),
]


@pytest.mark.parametrize(("loss", "formula"), FORMULAS, ids=[repr(f[0]) for f in FORMULAS])
@pytest.mark.parametrize("seed", [0, 1])
def test_value_and_gradient_match_finite_differences(loss, formula, seed, loss_inputs):
    x, old, mu, mask = toy(seed)
    if isinstance(loss, Dppo):
        x, mu = np.minimum(x, -0.05), np.minimum(mu, -0.05)
    weights = np.linspace(0.5, 1.5, len(x)) * mask
    logprobs = torch.tensor(x, requires_grad=True)
    inputs = loss_inputs(logprobs, ADVANTAGES, old_logprobs=old, rollout_logprobs=mu, mask=mask, lengths=LENGTHS)
    values = loss(inputs)
    counted = values.detach().numpy()[mask]
    np.testing.assert_allclose(counted, formula(x, x, old, mu, mask)[mask], rtol=1e-9)
    (values * torch.tensor(weights)).sum().backward()
    step, expected = 1e-6, np.zeros_like(x)
    for t in range(len(x)):
        up, down = x.copy(), x.copy()
        up[t] += step
        down[t] -= step
        difference = (formula(up, x, old, mu, mask) - formula(down, x, old, mu, mask)) * weights
        expected[t] = difference.sum() / (2 * step)
    np.testing.assert_allclose(logprobs.grad.numpy(), expected, rtol=1e-6, atol=1e-8)
    assert not logprobs.grad.numpy()[~mask].any()


SMOOTH = [ReinforceLoss(), PpoClip(), Gmpo(), Sapo(), DecoupledPpo()]


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_gradcheck_where_no_gradient_is_stopped(loss, loss_inputs):
    x, old, mu, mask = toy(3)

    def objective(logprobs):
        inputs = loss_inputs(logprobs, ADVANTAGES, old_logprobs=old, rollout_logprobs=mu, mask=mask, lengths=LENGTHS)
        return (loss(inputs) * torch.tensor(mask)).sum()

    assert torch.autograd.gradcheck(objective, torch.tensor(x, requires_grad=True))


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_on_policy_gradient_is_reinforce(loss, loss_inputs):
    """At ratio 1, under the average the method is made for, every loss starts out as the policy gradient."""
    x, _, _, mask = toy()
    x = np.minimum(x, -0.05)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    weights = torch.tensor(aggregation_weights("seq-mean-token-mean", mask, offsets)).double()
    grads = []
    for fn in (loss, ReinforceLoss()):
        logprobs = torch.tensor(x, requires_grad=True)
        (fn(loss_inputs(logprobs, ADVANTAGES, mask=mask, lengths=LENGTHS)) * weights).sum().backward()
        grads.append(logprobs.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_finite_at_extreme_ratios_and_on_masked_tokens(loss, loss_inputs):
    logprobs = torch.tensor([-0.0, -1e4, -1e-12, -50.0, -1.0], dtype=torch.float32, requires_grad=True)
    other = torch.tensor([-1e4, -0.0, -50.0, -1e-12, 0.0])
    inputs = loss_inputs(
        logprobs,
        torch.tensor([1.0, -1.0, -1.0, 1.0, 0.0]),
        old_logprobs=other,
        rollout_logprobs=other,
        mask=[True, True, True, True, False],
    )
    values = loss(inputs)
    assert values.shape == (5,)
    assert torch.isfinite(values).all()
    (values * inputs.mask).sum().backward()
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[4] == 0
    assert all(torch.isfinite(total) for total, _ in inputs.metrics.values())


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_micro_batches_add_up_to_the_mini_batch(loss, agg, loss_inputs):
    """1, 2 or 8 micro-batches of whole segments: same gradient and metrics, for every loss and aggregation."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 9, size=16)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    x = np.minimum(-1 + 0.4 * rng.normal(size=n), -0.01)
    old, mu = x + 0.3 * rng.normal(size=n), np.minimum(x + 0.3 * rng.normal(size=n), -0.01)
    advantages, mask = rng.normal(size=n), rng.random(n) < 0.8
    weights = torch.tensor(aggregation_weights(agg, mask, offsets, agg_length=9)).double()

    def run(splits):
        logprobs, metrics = torch.tensor(x, requires_grad=True), {}
        for part in np.array_split(np.arange(16), splits):
            at = slice(offsets[part[0]], offsets[part[-1] + 1])
            inputs = loss_inputs(
                logprobs[at],
                advantages[at],
                old_logprobs=old[at],
                rollout_logprobs=mu[at],
                mask=mask[at],
                lengths=lengths[part].tolist(),
                metrics=metrics,
            )
            (loss(inputs) * weights[at]).sum().backward()
        return logprobs.grad.numpy(), {k: float(total / count) for k, (total, count) in metrics.items()}

    whole, whole_metrics = run(1)
    assert np.abs(whole).max() > 0
    assert not whole[~mask].any()
    for splits in (2, 8):
        grad, metrics = run(splits)
        np.testing.assert_allclose(grad, whole, rtol=0, atol=1e-10)
        assert metrics == pytest.approx(whole_metrics, rel=1e-5)


def test_requirements_say_what_a_loss_divides_by():
    assert PpoClip().requirements() == {"old_logprobs"}
    assert Dppo().requirements() == {"rollout_logprobs"}
    assert DecoupledPpo().requirements() == {"old_logprobs", "rollout_logprobs"}
    assert not hasattr(ReinforceLoss(), "requirements")


def test_clip_fraction_counts_tokens_whose_gradient_is_gone(loss_inputs):
    inputs = loss_inputs(NEW, A, old_logprobs=OLD)
    PpoClip(clip_low=0.2, clip_high=0.28)(inputs)
    total, count = inputs.metrics["policy/clip_fraction"]
    assert (float(total), float(count)) == (2.0, 4.0)
