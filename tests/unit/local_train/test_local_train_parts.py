from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from roll_core.builtin.device import resolve_device, resolve_dtype
from roll_core.builtin.local_train.columns import check_columns, frozen_folders
from roll_core.builtin.local_train.kernels import install_rms_norm, rms_norm
from roll_core.builtin.local_train.layout import packed_layout
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.objective import Meter
from roll_core.builtin.local_train.optimizer import Optimizer, learning_rate
from roll_core.builtin.local_train.packing import plan_packed, plan_padded
from roll_core.contracts import LoraSettings, OptimSettings, TrainSetup
from roll_core.errors import BackendError

groups = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(1, 30), min_size=1, max_size=5).map(tuple)),
    min_size=1,
    max_size=6,
).map(tuple)


@settings(max_examples=40, deadline=None)
@given(sizes=groups, budget=st.integers(1, 120))
def test_plans_cover_every_segment_once_within_the_budget(sizes, budget) -> None:
    batch = _batch(sizes)
    segments = np.arange(batch.n_segments)
    for plan in (plan_packed(batch, segments, budget), plan_padded(batch, segments, budget)):
        assert sorted(np.concatenate(plan).tolist()) == segments.tolist()
        assert all((np.diff(members) > 0).all() for members in plan)
    for members in plan_packed(batch, segments, budget):
        assert len(members) == 1 or packed_layout(batch, members, torch.device("cpu"), torch.float32).rows <= budget
    for members in plan_padded(batch, segments, budget):
        assert len(members) == 1 or len(members) * (batch.lengths[members].max() - 1) <= budget


def _batch(sizes):
    from types import SimpleNamespace

    from roll_core.types import Batch

    lengths = [p + r for p, rs in sizes for r in rs]
    mask = np.concatenate([np.arange(p + r) >= p for p, rs in sizes for r in rs])
    owners = np.array([g for g, (_, rs) in enumerate(sizes) for _ in rs])
    defaults = SimpleNamespace(n=len(mask), b=len(owners))
    return Batch(
        np.ones(defaults.n, np.int32), np.cumsum([0, *lengths]).astype(np.int64), mask, mask,
        np.zeros(defaults.n, np.float32), np.arange(defaults.b), owners, np.zeros(defaults.b, np.int64), ("d",),
        np.zeros(defaults.b, np.float32), np.zeros(defaults.b, np.float32),
    )  # fmt: skip


def test_groups_stay_together_and_bins_are_balanced() -> None:
    plan = plan_packed(_batch(((10, (5, 5, 5, 5)),) * 4), np.arange(16), 60)
    assert [members.tolist() for members in plan] == [[*range(0, 4), *range(8, 12)], [*range(4, 8), *range(12, 16)]]


def test_learning_rate_schedules() -> None:
    warm = OptimSettings(lr=1.0, warmup_steps=4, schedule="linear")
    assert [learning_rate(warm, k, 8) for k in range(8)] == [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]
    cosine = OptimSettings(lr=2.0, schedule="cosine")
    assert learning_rate(cosine, 0, 10) == 2.0
    assert learning_rate(cosine, 5, 10) == pytest.approx(1.0)
    assert learning_rate(cosine, 99, 10) == pytest.approx(0.0)
    assert learning_rate(OptimSettings(lr=3.0), 10**6, 10) == 3.0


def test_a_step_is_adamw_with_clipping() -> None:
    torch.manual_seed(0)
    start, gradient = torch.randn(4, 3), torch.randn(4, 3)
    parameter, reference = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    weights = MasterWeights({"w": parameter}, torch.float32)
    options = OptimSettings(lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, clip_norm=0.5)
    optimizer = Optimizer(weights, options, 10)
    adamw = torch.optim.AdamW([reference], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for _ in range(3):
        weights.begin()
        (parameter * gradient).sum().backward()
        report = optimizer.step()
        reference.grad = gradient * (0.5 / gradient.norm())
        adamw.step()
    assert report.grad_norm == pytest.approx(gradient.norm().item(), rel=1e-5)
    torch.testing.assert_close(parameter, reference, rtol=1e-4, atol=1e-5)


def stepped(optimizer: Optimizer, parameter: torch.nn.Parameter, steps: int) -> None:
    for _ in range(steps):
        optimizer.weights.begin()
        (parameter.square().sum() * 3).backward()
        optimizer.step()


def test_an_optimizer_goes_on_from_moments_and_steps() -> None:
    """As a strategy that keeps them in a format of its own does it; with a norm of its own too."""
    options = OptimSettings(lr=0.1, schedule="linear", warmup_steps=2, weight_decay=0.1)
    norms: list[float] = []

    def norm(gradients):
        norms.append(float(gradients[0].norm()))
        return 2 * gradients[0].norm()

    parameters = [torch.nn.Parameter(torch.arange(6.0).view(2, 3)) for _ in range(2)]
    first, second = (Optimizer(MasterWeights({"w": p}, torch.float32), options, 10, norm) for p in parameters)
    start = parameters[0].detach().clone()
    assert all(not tensor["w"].any() for tensor in first.moments().values())
    assert (first.steps, torch.equal(parameters[0], start)) == ((0, 0), True)
    stepped(first, parameters[0], 3)
    with torch.no_grad():
        parameters[1].copy_(parameters[0])
        for kind, tensors in second.moments().items():
            tensors["w"].copy_(first.moments()[kind]["w"])
    second.go_on_from(*first.steps)
    stepped(first, parameters[0], 2)
    stepped(second, parameters[1], 2)
    assert torch.equal(*parameters)
    assert first.steps == second.steps == (5, 5)
    assert len(norms) == 7


def test_a_meter_sums_up() -> None:
    meter = Meter()
    for value in (1.0, 3.0):
        meter.add("policy/kl", value, 2.0)
        for name in ("loss/policy", "train/loss", "train/tokens"):
            meter.add(name, value, 0.0)
    totals = {"policy/kl": 1.0, "loss/policy": 2.0, "train/loss": 2.0, "train/tokens": 4.0}
    assert meter.summary(2) == totals


def test_columns_that_no_model_gives() -> None:
    folder = Path("model")
    setup = TrainSetup(folder, OptimSettings(), 1, reference=folder, teachers={"big": folder})
    check_columns(setup, frozenset({"old_logprobs", "entropy", "ref_logprobs", "logprobs@big"}))
    assert frozen_folders(setup) == {"ref_logprobs": folder, "logprobs@big": folder}
    assert frozen_folders(replace(setup, lora=LoraSettings())) == {"logprobs@big": folder}
    for column in ("values", "logprobs@small"):
        with pytest.raises(BackendError, match=f"'{column}' was asked for, but no model"):
            check_columns(setup, frozenset({column}))
    with pytest.raises(BackendError, match="'speed' cannot be computed; there are entropy, logprobs@big, old_logprobs"):
        check_columns(setup, frozenset({"speed"}))


def test_gradients_are_summed_in_float32_and_freed() -> None:
    parameter = torch.nn.Parameter(torch.ones(8, 8))
    weights = MasterWeights({"w": parameter, "idle": torch.nn.Parameter(torch.ones(2))}, torch.bfloat16)
    for _ in range(2):
        weights.begin()
        for _ in range(300):
            (parameter * 1.0).sum().backward()
    assert parameter.dtype == torch.bfloat16
    assert parameter.grad is None
    gradient, idle = weights.finish()
    assert (gradient == 300).all()
    assert (idle == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_equals_the_models(dtype) -> None:
    torch.manual_seed(0)
    theirs = LlamaRMSNorm(32, eps=1e-5).to(dtype)
    theirs.weight.data.normal_()
    x = torch.randn(3, 5, 32).to(dtype)
    upstream = torch.randn(3, 5, 32).to(dtype)
    results = []
    for fn in (theirs, lambda t: rms_norm(t, theirs.weight, 1e-5)):
        leaf = x.clone().requires_grad_()
        theirs.weight.grad = None
        out = fn(leaf)
        out.backward(upstream)
        results.append((out, leaf.grad, theirs.weight.grad))
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_only_norms_that_compute_the_same_are_replaced() -> None:
    other = Gemma2RMSNorm(16)
    assert install_rms_norm(torch.nn.ModuleList([LlamaRMSNorm(16), other, torch.nn.LayerNorm(16)])) == 1
    assert "forward" not in vars(other)


def test_device_and_precision() -> None:
    cpu = resolve_device("cpu", "here")
    assert resolve_dtype("float32", cpu) == torch.float32
    assert resolve_dtype("auto", cpu) in {torch.float32, torch.bfloat16}
    assert resolve_dtype("auto", cpu) == resolve_dtype("auto", cpu)
    assert math.isfinite(float(torch.zeros(1, device=resolve_device("auto", "here"))))
