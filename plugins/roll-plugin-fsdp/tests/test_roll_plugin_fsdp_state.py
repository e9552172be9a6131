"""Saving beside training, what cannot be read or written, published and exported weights, keyed dropout."""

from __future__ import annotations

import pytest
import torch
from fsdp_cases import build_batch, objective, published
from transformers import AutoModelForCausalLM

from roll_core.checkpoint import CheckpointStore
from roll_core.contracts import LoraSettings, OptimSettings
from roll_core.errors import BackendError, CheckpointError


def test_dropout_is_keyed_and_saving_goes_on_beside_training(start, make_setup, tmp_path) -> None:
    """Adapters with dropout: a step draws by seed, step and share alone, whatever was drawn before."""
    batch = build_batch()
    setup = make_setup(lora=LoraSettings(rank=2, dropout=0.3), optim=OptimSettings(lr=3e-2))
    ranks = start(setup, 2, micro_tokens=40)
    ranks.update(batch, [objective(batch)])
    before = published(ranks)
    (tmp_path / "a").mkdir()
    ranks.begin_save(tmp_path / "a")
    expected = ranks.update(batch, [objective(batch)])
    ranks.finish_save()
    assert {"fsdp.json", ".metadata"} < {path.name for path in (tmp_path / "a").iterdir()}
    again = ranks.update(batch, [objective(batch)])
    assert again != expected
    ranks.load(tmp_path / "a")
    assert all(torch.equal(tensor, before[name]) for name, tensor in published(ranks).items())
    assert ranks.update(batch, [objective(batch)]) == expected

    # what cannot be read or written leaves the ranks as they are
    store = CheckpointStore(tmp_path / "store")
    assert store.save(1, {}, ranks.save).read_state() == {}
    with pytest.raises(CheckpointError, match="cannot read the training state"):
        ranks.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot write the training state to .*file"):
        ranks.save(tmp_path / "file" / "folder")
    damaged = store.latest().strategy_folder / "__1_0.distcp"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot be read into this model"):
        ranks.load(store.latest().strategy_folder)
    ranks.load(tmp_path / "a")
    assert ranks.update(batch, [objective(batch)]) == expected
    ranks.export(tmp_path / "export")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(merged[name], tensor) for name, tensor in published(ranks).items())
    first, second = (ranks.weight_source().tensors() for _ in range(2))
    next(first)
    next(second)
    with pytest.raises(BackendError, match="asked for again"):
        list(first)
    ranks.close()
