"""Critic, frozen models, adapters and formats agree with the single-process strategy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fsdp_cases import build_batch, local_gradients, mean_term, objective, published, same_gradients
from fsdp_ranks import entropy_bonus, reference_kl, value_loss

from roll_core.contracts import LoraSettings, MiniBatch, OptimSettings
from roll_core.testing.tiny import make_tiny_model
from roll_core.types import SamplingParams

TOLERANCE = 2e-6


def test_all_terms_and_models_at_once(start, local, make_setup, tiny) -> None:
    """Clipping by the norm over all ranks, entropy, a reference, a teacher and a critic, several mini-batches."""
    batch = build_batch(sampling=SamplingParams(temperature=0.8))
    optim = OptimSettings(lr=3e-3, clip_norm=0.05, weight_decay=0.1, schedule="linear", warmup_steps=2)
    setup = make_setup(optim=optim, reference=tiny, teachers={"big": tiny}, critic=tiny, critic_optim=optim)
    single, many = local(setup), start(setup, 2, micro_tokens=30)
    columns = frozenset({"old_logprobs", "ref_logprobs", "logprobs@big", "values", "entropy"})
    found, expected = many.compute(batch, columns), single.compute(batch, columns)
    for name in columns:
        np.testing.assert_allclose(found[name], expected[name], atol=3e-6, err_msg=name)
    batch.add("ref_logprobs", expected["ref_logprobs"])
    extra = (
        mean_term(batch, "value", value_loss, "values"),
        mean_term(batch, "entropy", entropy_bonus, "entropy"),
        mean_term(batch, "kl", reference_kl, "full_logprobs"),
    )
    only_value = MiniBatch(np.arange(batch.n_segments), extra[:1])
    minis = [objective(batch, *extra, segments=[0, 3, 4, 5]), objective(batch, *extra, segments=[1, 2, 6]), only_value]
    a, b = single.update(batch, minis), many.update(batch, minis)
    for name in a.keys() - {"train/rows", "train/micro_batches"}:
        assert b[name] == pytest.approx(a[name], rel=2e-5, abs=1e-7), name
    found_critic = {name.removeprefix("layers."): g for name, g in many.gradients("critic").items()}
    same_gradients(found_critic, local_gradients(single, "critic"), TOLERANCE)
    after = published(many)
    assert all(np.allclose(t.numpy(), after[n].numpy(), atol=2e-5) for n, t in published(single).items())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_adapters(start, local, make_setup, tmp_path_factory, precision) -> None:
    lively = make_tiny_model(tmp_path_factory.mktemp("lively"), seed=2, initializer_range=0.2)
    batch = build_batch()
    setup = make_setup(model=lively, reference=lively, lora=LoraSettings(rank=4), optim=OptimSettings(lr=3e-3))
    single = local(setup, precision=precision)
    many = start(setup, 2, precision=precision, micro_tokens=40)
    columns = frozenset({"old_logprobs", "ref_logprobs"})
    before = many.compute(batch, columns)
    np.testing.assert_allclose(before["old_logprobs"], before["ref_logprobs"], atol=1e-5)
    exact = precision == "float32"
    for _ in range(3):
        a, b = single.update(batch, [objective(batch)]), many.update(batch, [objective(batch)])
        assert b["train/grad_norm"] == pytest.approx(a["train/grad_norm"], rel=1e-4 if exact else 0.05)
    if exact:
        expected = {name.removeprefix("base_model.model."): g for name, g in local_gradients(single).items()}
        same_gradients(many.gradients(), expected, 2e-4)
    after = many.compute(batch, columns)
    np.testing.assert_array_equal(after["ref_logprobs"], before["ref_logprobs"])
    assert np.abs(after["old_logprobs"] - before["old_logprobs"]).max() > 1e-3
    weights = published(many)
    assert not [name for name in weights if "lora" in name or "base" in name]
    for name, tensor in published(single).items():
        assert weights[name].dtype == tensor.dtype
        np.testing.assert_allclose(weights[name].float(), tensor.float(), atol=1e-5 if exact else 0.01, err_msg=name)


def test_bfloat16_has_float32_masters(start, local, make_setup) -> None:
    batch = build_batch()
    setup = make_setup(optim=OptimSettings(lr=1e-6))
    single, many = local(setup, precision="bfloat16"), start(setup, 2, precision="bfloat16", micro_tokens=40)
    before = published(many)
    a, b = single.update(batch, [objective(batch)]), many.update(batch, [objective(batch)])
    assert b["train/grad_norm"] == pytest.approx(a["train/grad_norm"], rel=0.03)
    for _ in range(3):
        many.update(batch, [objective(batch)])
    assert {tensor.dtype for tensor in before.values()} == {torch.bfloat16}
    unchanged = [name for name, tensor in published(many).items() if torch.equal(tensor, before[name])]
    assert unchanged, "the steps are below what bfloat16 resolves"
    assert {str(g.dtype) for g in many.gradients().values()} == {"float32"}
    held = many.ask("own_bytes")
    assert sum(held) == sum(4 * tensor.numel() for tensor in before.values())
    assert max(held) < 0.6 * sum(held)
