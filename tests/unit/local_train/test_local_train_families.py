"""The strategy scores tokens as each model family's own forward does, whichever layout it ends up with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from roll_core.builtin.local_train.strategy import LocalTrainStrategy

COMMON = {
    "vocab_size": 62, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "GPT2": (
        {
            "vocab_size": 62,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 128,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        True,
    ),
    "Qwen2": (COMMON, True),
    "Qwen3": ({**COMMON, "head_dim": 8}, True),
    "Granite": ({**COMMON, "logits_scaling": 3.0, "embedding_multiplier": 2.0, "attention_multiplier": 0.2}, True),
    "Cohere": ({**COMMON, "logit_scale": 0.3}, True),
    "Gemma": ({**COMMON, "head_dim": 8}, True),
    "Gemma2": ({**COMMON, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 2.0}, False),
    "Phi": ({**COMMON, "num_key_value_heads": 4}, True),
    "Mixtral": ({**COMMON, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": None}, True),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_models_own(tmp_path, make_setup, make_batch, objective, family) -> None:
    options, packs = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**options)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path)
    batch = make_batch()
    strategy = LocalTrainStrategy(setup=make_setup(model=tmp_path), precision="float32", device="cpu")
    expected = own_logprobs(tmp_path, batch)
    found = strategy.compute(batch, frozenset({"old_logprobs"}))["old_logprobs"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    metrics = strategy.update(batch, [objective(batch)])
    whole = int((batch.lengths - 1).max()) * batch.n_segments
    assert (metrics["train/rows"] < whole) == packs
    np.testing.assert_allclose(metrics["policy/logprob"], expected[batch.loss_mask].mean(), atol=1e-4)


def own_logprobs(folder, batch) -> np.ndarray:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    out = np.zeros(batch.n_tokens, np.float32)
    for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids = torch.as_tensor(batch.token_ids[start:stop]).long()[None]
        with torch.no_grad():
            logp = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        out[start + 1 : stop] = logp.gather(1, ids[0, 1:, None])[:, 0].numpy()
    return np.where(batch.response_mask, out, 0.0).astype(np.float32)
