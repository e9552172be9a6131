"""Examples for the conformance kit of `roll_core.testing`, with a model made by hand; nothing in a run imports this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roll_core.testing.cases import VerifierCases
from roll_core.testing.tiny import make_tiny_tokenizer


def make_counting_model(folder: Path, *, letter: str = "y") -> Path:
    """Write a one-layer Llama whose logit grows with the share of one letter in what it reads.

    Attention without queries averages over all tokens; the value of the letter is all it carries. Returns `folder`.
    """
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    tokenizer = make_tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=512,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForSequenceClassification(config)
    layer = model.model.layers[0]
    with torch.no_grad():
        for parameter in (p for name, p in model.named_parameters() if "norm" not in name):
            parameter.zero_()
        model.model.embed_tokens.weight[:, 1] = 1.0
        model.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids(letter), 0] = 1.0
        layer.self_attn.v_proj.weight[2, 0] = 1.0
        layer.self_attn.o_proj.weight[2, 2] = 1.0
        model.score.weight[0, 2] = 1.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _options(folder: Path) -> Mapping[str, Any]:
    return {
        "model": str(make_counting_model(folder)),
        "transform": "linear",
        "scale": 2.0,
        "offset": -2.0,
        "device": "cpu",
        "max_wait_ms": 0.0,
    }


_ASKED = {"prompt": "say yes"}

CONFORMANCE = {
    "verifiers/reward_model": VerifierCases(
        options=_options,
        gold=[("yyyyyyyyyyyyyyyyyyyyyyyy", _ASKED), ("<think>no</think>yyyy yyyy yyyy yyyy yyyy yyyy", _ASKED)],
        wrong=[("no, no, no, no, no", _ASKED), ("<think>yyyyyyyyyyyyyyyyyyyyyyyy</think> no", _ASKED)],
        limit_s=90.0,
    )
}
