from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from roll_core.builtin.local_train import attention
from roll_core.builtin.local_train.layout import packed_layout, padded_layout
from roll_core.builtin.local_train.loading import load_causal_lm, supports_packing
from roll_core.builtin.local_train.logprob import Workspace
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.model import Backbone, ScoringModel
from roll_core.errors import BackendError
from roll_core.types import Batch

CPU = torch.device("cpu")


def scores_and_gradients(tiny: Path, kind: Any, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model = load_causal_lm(tiny, torch.float32, CPU)
    weights = MasterWeights(dict(model.named_parameters()), torch.float32)
    policy = ScoringModel(model, tiny, kind, Workspace(7), weights)
    layout = policy.layout(batch, np.arange(batch.n_segments))
    scores = policy.scores(batch, layout, entropy=True)
    factors = torch.linspace(-1, 2, len(scores.logprobs))
    weights.begin()
    ((scores.logprobs * factors).sum() + scores.entropy.square().sum()).backward()
    return scores.logprobs.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize(("tile", "short"), [(1 << 20, 128), (1 << 20, 0), (300, 128), (40, 0)])
def test_packed_equals_padded_in_values_and_gradients(tiny, make_batch, monkeypatch, tile, short) -> None:
    monkeypatch.setattr(attention, "_CPU_TILE", tile)
    monkeypatch.setattr(attention, "_SHORT", short)
    batch = make_batch(((5, (4, 1, 7)), (3, (2, 6)), (9, (30, 3, 3)), (1, (2,))))
    packed, packed_gradients = scores_and_gradients(tiny, "shared_prompt", batch)
    padded, padded_gradients = scores_and_gradients(tiny, "padded", batch)
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-5)
    assert max(g.abs().max() for g in padded_gradients.values()) > 0.1
    for name, gradient in padded_gradients.items():
        torch.testing.assert_close(packed_gradients[name], gradient, rtol=1e-4, atol=2e-5, msg=name)


def test_logprobs_are_those_of_the_plain_model(tiny, make_batch) -> None:
    batch = make_batch()
    found, _ = scores_and_gradients(tiny, "shared_prompt", batch)
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    expected = []
    for s in range(batch.n_segments):
        ids = torch.as_tensor(batch.token_ids[batch.offsets[s] : batch.offsets[s + 1]]).long()
        logp = model(input_ids=ids[None]).logits[0].log_softmax(-1)
        mask = batch.response_mask[batch.offsets[s] : batch.offsets[s + 1]]
        expected += [logp[t - 1, ids[t]] for t in np.flatnonzero(mask)]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_prompt_is_laid_out_once_per_group(make_batch) -> None:
    batch = make_batch(((5, (4, 4)), (5, (4,))), gaps=False)
    layout = packed_layout(batch, np.arange(3), CPU, torch.float32)
    assert layout.rows == 5 + 3 + 3 + 5 + 3
    assert layout.position_ids[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 5, 6, 7]
    assert padded_layout(batch, np.arange(3), CPU).rows == 3 * 8


def test_prompts_that_differ_inside_a_group_are_not_shared(make_batch) -> None:
    batch = make_batch(((5, (4, 4)),), gaps=False)
    batch.token_ids[0] += 1
    assert packed_layout(batch, np.arange(2), CPU, torch.float32).rows == 2 * 8


def test_a_segment_without_samples_is_laid_out_but_not_scored(tiny, make_batch) -> None:
    batch = make_batch(((5, (4, 4)),), gaps=False)
    batch.response_mask[:9] = False
    packed, _ = scores_and_gradients(tiny, "shared_prompt", batch)
    padded, _ = scores_and_gradients(tiny, "padded", batch)
    assert len(packed) == 4
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-5)


def test_sampled_first_token_is_refused(make_batch) -> None:
    batch = make_batch(((5, (4, 4)),))
    batch.response_mask[9] = True
    with pytest.raises(BackendError, match="first token of segment 1"):
        packed_layout(batch, np.arange(2), CPU, torch.float32)


@pytest.fixture
def sliding(tmp_path: Path) -> Path:
    config = MistralConfig(
        vocab_size=62, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4, max_position_embeddings=64, pad_token_id=2,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def test_sliding_window_falls_back_to_padded(sliding, make_batch) -> None:
    model = load_causal_lm(sliding, torch.float32, CPU)
    assert "sliding window of 4" in supports_packing(model)
    assert Backbone(model, sliding, "auto").layout(make_batch(), np.arange(3)).plan is None
    with pytest.raises(BackendError, match=r"shared_prompt.*sliding window"):
        Backbone(model, sliding, "shared_prompt")


def test_long_segments_and_foreign_tokens_are_refused(tiny, make_batch) -> None:
    backbone = Backbone(load_causal_lm(tiny, torch.float32, CPU), tiny, "auto")
    with pytest.raises(BackendError, match="513 tokens, more than the 512"):
        backbone.plan(make_batch(((500, (13,)),)), np.arange(1), 4096)
    with pytest.raises(BackendError, match="outside the vocabulary"):
        backbone.plan(make_batch(vocabulary=5000), np.arange(1), 4096)


def test_missing_model_is_named(tmp_path) -> None:
    with pytest.raises(BackendError, match=r"config\.json is missing"):
        load_causal_lm(tmp_path, torch.float32, CPU)
