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


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only transformer."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of the MLP a token goes through: for experts, that of all its active ones."""
    vocabulary: int
    parameters: int
    """All of them, experts and embeddings included."""
    is_exact: bool
    """Whether they were counted in the weight files, or follow from the sizes."""

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer (embeddings left out)."""
        return max(self.parameters - self.vocabulary * self.hidden, 0) // self.layers

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token: keys and values of every layer, 2 bytes each number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    @property
    def activation_numbers(self) -> int:
        """Numbers one layer keeps for the backward pass, per token.

        With attention that does not keep its matrix: two norms (in and out), the input of the output projection's sum,
        queries, keys, values, the attention's output, gate, up, their activation and product.
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return 5 * self.hidden + 2 * queries + 2 * keys + 4 * self.intermediate

    @property
    def linear_numbers(self) -> int:
        """Sum of inputs and outputs of a layer's linear maps: parameters of its adapters per unit of their rank."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * (self.hidden + queries) + 2 * (self.hidden + keys)
        return attention + _MATRICES_OF_MLP * (self.hidden + self.intermediate)


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
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or hidden // heads)
    width = int(config.get("intermediate_size") or 4 * hidden)
    experts = int(config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts") or 0)
    active, total = width, width
    if experts:
        expert = int(config.get("moe_intermediate_size") or width)
        active, total = expert * int(config.get("num_experts_per_tok") or 1), expert * experts
    if parameters is None:
        attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
        layer = attention + _MATRICES_OF_MLP * hidden * total + 2 * hidden
        embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
        derived = layers * layer + embeddings + hidden
    return ModelShape(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=active,
        vocabulary=vocabulary,
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


def _size(config: Mapping[str, Any], key: str, place: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{place} has no usable '{key}', so the memory this model needs cannot be estimated")
    return value
