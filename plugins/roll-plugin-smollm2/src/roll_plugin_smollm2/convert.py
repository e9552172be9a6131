"""A llama-architecture GGUF file to a Hugging Face folder, without llama.cpp and without a hub.

GGUF keeps the two rotary halves of the query and key projections interleaved, so their rows are put back in order.
The tokenizer is rebuilt from the vocabulary and merges in the file, with SmolLM2's "digits stand alone" step, which
transformers' own GGUF reader leaves out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_GLOBAL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3
"""GGUF's token type of special tokens."""


def gguf_to_hf(file: Path, folder: Path) -> None:
    """Write weights (float32), tokenizer and generation settings of `file` into the existing `folder`.

    Raises:
        ValueError: the file holds another architecture or tokenizer than Llama with byte-level BPE.
    """
    reader = GGUFReader(file)
    fields = _Fields(reader)
    if fields("general.architecture") != "llama" or fields("tokenizer.ggml.model") != "gpt2":
        raise ValueError(f"{file} is not a llama model with a byte-level BPE tokenizer")
    weights = _read_weights(reader, fields)
    config = _model_config(fields, is_tied="lm_head.weight" not in weights)
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(folder)
    _tokenizer(fields, config).save_pretrained(folder)


class _Fields:
    """Metadata values of a GGUF file by key."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields

    def __call__(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        return default if field is None else field.contents()


def _read_weights(reader: Any, fields: _Fields) -> dict[str, torch.Tensor]:
    heads = {"attn_q": fields("llama.attention.head_count"), "attn_k": fields("llama.attention.head_count_kv")}
    weights = {}
    for tensor in reader.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if block is None:
            name = _GLOBAL_NAMES[tensor.name.removesuffix(".weight")]
        else:
            name = f"model.layers.{block[1]}.{_BLOCK_NAMES[block[2]]}"
            if block[2] in heads:
                values = _deinterleave(values, heads[block[2]])
        weights[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    return weights


def _deinterleave(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _model_config(fields: _Fields, *, is_tied: bool) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(fields("tokenizer.ggml.tokens")),
        hidden_size=fields("llama.embedding_length"),
        intermediate_size=fields("llama.feed_forward_length"),
        num_hidden_layers=fields("llama.block_count"),
        num_attention_heads=fields("llama.attention.head_count"),
        num_key_value_heads=fields("llama.attention.head_count_kv"),
        max_position_embeddings=fields("llama.context_length"),
        rms_norm_eps=fields("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": fields("llama.rope.freq_base", 10000.0)},
        tie_word_embeddings=is_tied,
        bos_token_id=fields("tokenizer.ggml.bos_token_id"),
        eos_token_id=fields("tokenizer.ggml.eos_token_id"),
        pad_token_id=fields("tokenizer.ggml.padding_token_id"),
    )


def _tokenizer(fields: _Fields, config: LlamaConfig) -> Any:
    tokens, types = fields("tokenizer.ggml.tokens"), fields("tokenizer.ggml.token_type")
    merges = [tuple(pair.split(" ")) for pair in fields("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if fields("tokenizer.ggml.pre") == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    else:
        tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[config.bos_token_id],
        eos_token=tokens[config.eos_token_id],
        pad_token=tokens[config.pad_token_id],
        unk_token=tokens[fields("tokenizer.ggml.unknown_token_id")],
        model_max_length=config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = fields("tokenizer.chat_template")
    return fast
