"""Saving beside training, what cannot be read or written, published and exported weights, keyed dropout."""

from __future__ import annotations

import time

import pytest
import torch
from fsdp_cases import build_batch, objective, published
from transformers import AutoModelForCausalLM

from roll_core.checkpoint import CheckpointStore
from roll_core.contracts import LoraSettings, OptimSettings
from roll_core.errors import BackendError, CheckpointError


@pytest.fixture(scope="module")
def ranks(start_for_module, make_setup):
    """Adapters with dropout."""
    setup = make_setup(lora=LoraSettings(rank=2, dropout=0.3), optim=OptimSettings(lr=3e-2))
    return start_for_module(setup, 2, micro_tokens=40)


def step(ranks):
    batch = build_batch()
    return ranks.update(batch, [objective(batch)])


def folder(tmp_path, name="state"):
    made = tmp_path / name
    made.mkdir()
    return made


def wait_until_saved(ranks) -> None:
    end = time.monotonic() + 120
    while not ranks.has_saved():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_saved_is_what_was_there_at_the_beginning(ranks, tmp_path) -> None:
    """Training goes on between `begin_save` and `finish_save`, more than once, and is in no checkpoint."""
    step(ranks)
    before, first = published(ranks), folder(tmp_path, "first")
    assert ranks.has_saved()
    ranks.begin_save(first)
    with pytest.raises(CheckpointError, match="has not been finished"):
        ranks.begin_save(folder(tmp_path, "too early"))
    expected = [step(ranks), step(ranks)]
    wait_until_saved(ranks)
    ranks.finish_save()
    ranks.finish_save()
    assert {"fsdp.json", ".metadata", "__0_0.distcp", "__1_0.distcp"} == {path.name for path in first.iterdir()}
    second = folder(tmp_path, "second")
    ranks.begin_save(second)
    later = step(ranks)
    ranks.finish_save()

    ranks.load(first)
    assert all(torch.equal(tensor, before[name]) for name, tensor in published(ranks).items())
    # a step draws its dropout by seed, step and share alone, whatever was drawn before
    assert [step(ranks), step(ranks)] == expected
    assert step(ranks) == later
    ranks.load(second)
    assert step(ranks) == later


def test_what_cannot_be_read_or_written_leaves_ranks_that_go_on(ranks, tmp_path) -> None:
    good = folder(tmp_path)
    ranks.save(good)
    expected = step(ranks)
    store = CheckpointStore(tmp_path / "store")
    saving = store.begin(1, {}, ranks)
    checkpoint = store.finish(saving)
    assert checkpoint.read_state() == {}
    with pytest.raises(CheckpointError, match="cannot read the training state"):
        ranks.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot write the training state to .*file"):
        ranks.save(tmp_path / "file" / "folder")
    damaged = checkpoint.strategy_folder / "__1_0.distcp"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot be read into this model"):
        ranks.load(checkpoint.strategy_folder)
    ranks.load(good)
    assert step(ranks) == expected


def test_adapters_are_merged_in_what_is_published_and_exported(ranks, tmp_path) -> None:
    step(ranks)
    ranks.export(tmp_path / "export")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(merged[name], tensor) for name, tensor in published(ranks).items())
    first, second = (ranks.weight_source().tensors() for _ in range(2))
    next(first)
    next(second)
    with pytest.raises(BackendError, match="asked for again"):
        list(first)
