"""Copies of the model and split matrices agree with the single-process strategy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fsdp_cases import build_batch, local_gradients, mean_term, objective, published, same_gradients
from fsdp_ranks import value_loss
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from roll_core.contracts import LoraSettings, OptimSettings
from roll_core.errors import BackendError
from roll_core.testing.tiny import make_tiny_tokenizer

TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def tiny_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Norms on queries and keys, whose gradients are parts on tensor-parallel ranks; embeddings not tied."""
    folder = tmp_path_factory.mktemp("qwen")
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
    return folder


def both_update(single, many, batch, minis) -> None:
    """Make the same updates and check that metrics, gradients and weights agree."""
    for mini in minis:
        a, b = single.update(batch, [mini]), many.update(batch, [mini])
        for name in a.keys() - {"train/rows", "train/micro_batches"}:
            assert b[name] == pytest.approx(a[name], rel=2e-5, abs=1e-7), name
    same_gradients(many.gradients(), local_gradients(single), TOLERANCE)
    after = published(many)
    assert all(np.allclose(t.numpy(), after[n].numpy(), atol=2e-5) for n, t in published(single).items())


def test_hybrid_sharding_and_checkpointing(start, local, make_setup) -> None:
    """Two copies of the model, each over two ranks; layers are computed again in the backward pass."""
    batch = build_batch()
    setup = make_setup(optim=OptimSettings(lr=1e-3, clip_norm=0.1))
    many = start(setup, 4, replicate=2, gradient_checkpointing=True, micro_tokens=24, layout="padded")
    assert many.ask("groups")[0] == (4, [2, 2, 1])
    both_update(local(setup), many, batch, [objective(batch), objective(batch, segments=[5])])


def test_tensor_parallelism(start, local, make_setup, tiny_qwen, tmp_path) -> None:
    """Two shards of matrices that two ranks split; state and weights come whole out of it."""
    batch = build_batch()
    setup = make_setup(model=tiny_qwen, optim=OptimSettings(lr=1e-3, clip_norm=0.1), critic=tiny_qwen)
    single, many = local(setup), start(setup, 4, tensor_parallel=2, micro_tokens=40)
    assert many.ask("groups")[0] == (4, [1, 2, 2])
    value = mean_term(batch, "value", value_loss, "values")
    both_update(single, many, batch, [objective(batch, value), objective(batch, value, segments=[5])])
    columns = frozenset({"values", "old_logprobs"})
    found, expected = many.compute(batch, columns), single.compute(batch, columns)
    for name in columns:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    many.save(tmp_path)
    after = many.update(batch, [objective(batch, value)])
    many.load(tmp_path)
    assert many.update(batch, [objective(batch, value)]) == after


def test_layouts_that_cannot_be(start, make_setup, tiny_qwen, tmp_path) -> None:
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    make_tiny_tokenizer().save_pretrained(tmp_path / "gpt2")
    with pytest.raises(BackendError, match="no tensor-parallel plan"):
        start(make_setup(model=tmp_path / "gpt2"), 2, tensor_parallel=2)
    with pytest.raises(BackendError, match="adapters"):
        start(make_setup(model=tiny_qwen, lora=LoraSettings(rank=2)), 2, tensor_parallel=2)
