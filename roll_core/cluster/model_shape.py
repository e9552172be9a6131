"""What a model's folder says about its size, read without loading it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.errors import ConfigError

_MATRICES_OF_MLP = 3
"""gate, up and down."""
_NORMS = 2
"""Of a layer."""
Linear = tuple[int, int]
"""Inputs and outputs of a linear map."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Sizes of one layer's attention."""

    heads: int
    linears: tuple[Linear, ...]
    """Its linear maps."""
    numbers: int
    """Queries, keys, values and outputs of one token."""
    cached: int
    """Numbers that the KV cache holds for one token."""
    cache_parts: int
    """Most devices the cache can be divided over: KV heads, or 1 where all heads read one latent."""
    biases: int = 0

    @property
    def parameters(self) -> int:
        """Of all its maps."""
        return sum(inputs * outputs for inputs, outputs in self.linears) + self.biases


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only transformer."""

    hidden: int
    layers: int
    vocabulary: int
    attention: Attention
    intermediate: int
    """Width of the MLP a token goes through: for experts, that of all its active and shared ones."""
    experts_per_token: int
    """0 without experts."""
    embeddings: int
    """Parameters of embedding and output layer."""
    layer_parameters: int
    """Of the largest layer."""
    parameters: int
    """All of them, experts and embeddings included."""
    is_exact: bool
    """Whether they were counted in the weight files, or follow from the sizes."""

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.attention.heads

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token: what every layer caches, 2 bytes each number."""
        return 2 * self.layers * self.attention.cached

    @property
    def activation_numbers(self) -> int:
        """Numbers one layer keeps for the backward pass, per token.

        With attention that does not keep its matrix: two norms (in and out), the input of the output projection's sum,
        queries, keys, values, the attention's output, gate, up, their activation and product. With experts also the
        copies that go to them and come back.
        """
        copies = 2 * self.experts_per_token * self.hidden
        return 5 * self.hidden + self.attention.numbers + 4 * self.intermediate + copies

    @property
    def linear_numbers(self) -> int:
        """Sum of inputs and outputs of a layer's linear maps: parameters of its adapters per unit of their rank."""
        return sum(map(sum, self.attention.linears)) + _MATRICES_OF_MLP * (self.hidden + self.intermediate)


def read_shape(folder: Path) -> ModelShape:
    """Read `config.json`, and count parameters in the headers of the weight files where there are some.

    Raises:
        ConfigError: there is no `config.json`, or it lacks a size.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return shape_of(config, str(path), counted_parameters(folder))


def shape_of(config: Mapping[str, Any], place: str, parameters: int | None = None) -> ModelShape:
    """The shape a Hugging Face configuration describes.

    Args:
        config: its keys; those of a multi-modal model are taken from `text_config`.
        place: where it came from, for messages.
        parameters: counted ones; None derives them.

    Raises:
        ConfigError: a size is missing.
    """
    config = config.get("text_config") or config
    hidden, layers, heads, vocabulary = (
        _size(config, key, place) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    )
    attention = _latent(config, hidden, heads) if config.get("kv_lora_rank") else _grouped(config, hidden, heads)
    width = int(config.get("intermediate_size") or 4 * hidden)
    experts = _first(config, "num_experts", "num_local_experts", "n_routed_experts")
    per_token = int(config.get("num_experts_per_tok") or 1) if experts else 0
    expert = int(config.get("moe_intermediate_size") or width)
    shared = int(config.get("n_shared_experts") or 0) * expert + int(config.get("shared_expert_intermediate_size") or 0)
    dense = int(config.get("first_k_dense_replace") or len(config.get("mlp_only_layers") or ())) if experts else layers
    rest = attention.parameters + _NORMS * hidden
    layer = rest + _MATRICES_OF_MLP * hidden * width
    mixed = rest + _MATRICES_OF_MLP * hidden * (experts * expert + shared) + experts * hidden  # with the router
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    derived = dense * layer + (layers - dense) * mixed + embeddings + hidden
    return ModelShape(
        hidden=hidden,
        layers=layers,
        vocabulary=vocabulary,
        attention=attention,
        intermediate=max(per_token * expert + shared, width if dense else 0),
        experts_per_token=per_token,
        embeddings=embeddings,
        layer_parameters=max(mixed if experts else 0, layer if dense else 0),
        parameters=derived if parameters is None else parameters,
        is_exact=parameters is not None,
    )


def counted_parameters(folder: Path) -> int | None:
    """Numbers in the folder's safetensors files, from their headers alone; None without readable ones."""
    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length))
        except (OSError, ValueError, struct.error):
            return None
        total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total or None


def _grouped(config: Mapping[str, Any], hidden: int, heads: int) -> Attention:
    """Attention whose queries share keys and values in groups (arXiv:2305.13245); one group is plain attention."""
    kv_heads = int(config.get("num_key_value_heads") or heads)
    size = int(config.get("head_dim") or hidden // heads)
    queries, keys = heads * size, kv_heads * size
    has_biases = config.get("attention_bias") or str(config.get("model_type", "")).startswith("qwen2")
    return Attention(
        heads=heads,
        linears=((hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)),
        numbers=2 * queries + 2 * keys,
        cached=2 * keys,
        cache_parts=kv_heads,
        biases=queries + 2 * keys if has_biases else 0,
    )


def _latent(config: Mapping[str, Any], hidden: int, heads: int) -> Attention:
    """Multi-head latent attention (arXiv:2405.04434): one compressed latent and one rotary key a token."""
    latent, rotary = int(config["kv_lora_rank"]), int(config.get("qk_rope_head_dim") or 0)
    plain = int(config.get("qk_nope_head_dim") or 0)
    value, compressed = int(config.get("v_head_dim") or plain), int(config.get("q_lora_rank") or 0)
    queries = heads * (plain + rotary)
    into = ((hidden, compressed), (compressed, queries)) if compressed else ((hidden, queries),)
    return Attention(
        heads=heads,
        linears=(*into, (hidden, latent + rotary), (latent, heads * (plain + value)), (heads * value, hidden)),
        numbers=2 * queries + 2 * heads * value + compressed + latent + rotary,
        cached=latent + rotary,
        cache_parts=1,
        biases=compressed + latent,  # the weights of the norms between the maps
    )


def _first(config: Mapping[str, Any], *keys: str) -> int:
    return next((int(config[key]) for key in keys if config.get(key)), 0)


def _size(config: Mapping[str, Any], key: str, place: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{place} has no usable '{key}', so the memory this model needs cannot be estimated")
    return value
