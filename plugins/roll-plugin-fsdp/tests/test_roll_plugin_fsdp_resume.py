"""Checkpoints, resuming on another number of ranks, export."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fsdp_cases import build_batch, mean_term, objective, published
from fsdp_ranks import value_loss
from transformers import AutoModelForCausalLM, AutoTokenizer

from roll_core.contracts import OptimSettings
from roll_core.errors import CheckpointError

OPTIM = OptimSettings(lr=1e-2, schedule="cosine", warmup_steps=1)


def step(strategy, batch):
    return strategy.update(batch, [objective(batch, mean_term(batch, "value", value_loss, "values"))])


@pytest.fixture(scope="module")
def setup(make_setup, tiny):
    return make_setup(optim=OPTIM, total_steps=4, critic=tiny)


@pytest.fixture(scope="module")
def saved(start_for_module, setup, tmp_path_factory):
    """A run of two ranks that was saved after two steps and went on for two; closed."""
    batch, folder = build_batch(), tmp_path_factory.mktemp("saved")
    whole = start_for_module(setup, 2, micro_tokens=40)
    step(whole, batch)
    step(whole, batch)
    whole.save(folder)
    expected = [step(whole, batch), step(whole, batch)]
    weights, values = published(whole), whole.compute(batch, frozenset({"values"}))["values"]
    whole.export(folder / "export")
    whole.close()
    return folder, expected, weights, values


def test_resumes_bit_equal_on_as_many_ranks_and_within_rounding_on_others(start, setup, saved) -> None:
    folder, expected, weights, values = saved
    batch = build_batch()
    for ranks in (2, 1, 4):
        resumed = start(replace(setup, seed=9), ranks, micro_tokens=40)
        resumed.load(folder)
        found = [step(resumed, batch), step(resumed, batch)]
        after = published(resumed)
        critic = resumed.compute(batch, frozenset({"values"}))["values"]
        resumed.close()
        if ranks == 2:
            assert found == expected
            assert all(torch.equal(tensor, after[name]) for name, tensor in weights.items())
            np.testing.assert_array_equal(critic, values)
            continue
        for ours, theirs in zip(found, expected, strict=True):
            assert ours["train/grad_norm"] == pytest.approx(theirs["train/grad_norm"], rel=1e-4)
            assert ours["train/lr"] == theirs["train/lr"]
        for name, tensor in weights.items():
            np.testing.assert_allclose(after[name], tensor, atol=2e-4, err_msg=name)
        np.testing.assert_allclose(critic, values, atol=1e-3)


def test_export_loads_in_transformers(saved) -> None:
    folder, _, weights, _ = saved
    model = AutoModelForCausalLM.from_pretrained(folder / "export", dtype="auto")
    assert model.dtype == torch.float32
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in weights.items())
    assert AutoTokenizer.from_pretrained(folder / "export")("1+2").input_ids


def test_a_state_of_other_settings_is_refused(start, make_setup, saved) -> None:
    other = start(make_setup(optim=OPTIM), 1)
    with pytest.raises(CheckpointError, match="roles"):
        other.load(saved[0])
