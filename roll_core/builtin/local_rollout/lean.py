"""Llama-like decoders in few operations: Llama, Mistral, Qwen2 and Qwen3 as transformers lays them out.

Same sums as the transformers modules, whose weights are read: query, key and value (gate and up) are one product each,
residuals are added inside the products, query heads that share a key head are one small matrix instead of repeated
keys, prompts are computed end to end without padding. `loading.choose_runner` checks it against the model's own
forward before use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roll_core.builtin.local_rollout.cache import DecodeStep, PromptBatch, SlotStore
from roll_core.builtin.local_rollout.linear import Dense, round_rows

_SUPPORTED = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})


def supports(model: Any) -> bool:
    """Whether `model` is laid out as this module expects."""
    config = model.config
    return type(model).__name__ in _SUPPORTED and config.hidden_act == "silu"


class _Norm:
    """Root-mean-square norm over the last axis."""

    def __init__(self, module: Any) -> None:
        self._weight: Tensor = module.weight
        self._eps: float = module.variance_epsilon

    def __call__(self, inputs: Tensor) -> Tensor:
        return functional.rms_norm(inputs, (inputs.shape[-1],), self._weight, self._eps)


class _Rotary:
    """Cosines and signed sines of a step; applying them is x * cos + (x with its halves swapped) * sin."""

    def __init__(self, module: Any, like: Tensor, positions: Tensor) -> None:
        cos, sin = module(like, position_ids=positions[None])
        half = cos.shape[-1] // 2
        self._half = half
        self._cos = cos[0, :, None]
        self._sin = torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), dim=-1)

    def __call__(self, heads: Tensor) -> Tensor:
        swapped = torch.cat((heads[..., self._half :], heads[..., : self._half]), dim=-1)
        return torch.addcmul(heads * self._cos, swapped, self._sin)


class _Attend(ABC):
    """Stores a layer's keys and values [N, kv_heads, d] and attends with queries [N, heads, d]."""

    @abstractmethod
    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Return the attended values [N, heads * d]."""


class _AttendPrompts(_Attend):
    def __init__(self, store: SlotStore, batch: PromptBatch) -> None:
        self._store, self._slots = store, batch.slots
        self._lengths = [len(prompt) for prompt in batch.prompts]

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        repeats = queries.shape[1] // keys.shape[1]
        attended = []
        whole = (x.transpose(0, 1)[None] for x in (queries, keys, values))
        parts = zip(*(torch.split(x, self._lengths, 2) for x in whole), strict=True)
        for slots, (query, key, value) in zip(self._slots, parts, strict=True):
            self._store.fill(layer, key, value, slots)
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)  # noqa: PLW2901
            result = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
            attended.append(result[0].transpose(0, 1).flatten(1))
        return torch.cat(attended)


class _AttendSlots(_Attend):
    def __init__(self, store: SlotStore, step: DecodeStep) -> None:
        self._store, self._step = store, step
        self._masks: dict[int, Tensor] = {}

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        n, kv_heads, size = keys.shape
        keys, values = self._store.put(layer, keys[:, :, None], values[:, :, None], self._step)
        grouped = queries.reshape(n, kv_heads, -1, size)
        if queries.device.type == "cpu":
            return self._products(grouped, keys, values, scale).view(n, -1)
        mask = self._step.mask[:, None, None].to(queries.dtype)
        result = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scale)
        return result.reshape(n, -1)

    def _products(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Attention as two batched products: for one query token a CPU does these twice as fast as the fused kernel."""
        kv_heads = keys.shape[1]
        if kv_heads not in self._masks:
            self._masks[kv_heads] = self._step.mask.repeat_interleave(kv_heads, 0)[:, None]
        scores = torch.bmm(keys.flatten(0, 1), queries.flatten(0, 1).transpose(1, 2)).transpose(1, 2)
        scores = torch.add(self._masks[kv_heads], scores, alpha=scale)
        return torch.bmm(scores.softmax(-1).to(values.dtype), values.flatten(0, 1))


class _Layer:
    """One decoder layer."""

    def __init__(self, module: Any) -> None:
        attention, mlp = module.self_attn, module.mlp
        self._norms = _Norm(module.input_layernorm), _Norm(module.post_attention_layernorm)
        self._head_norms = tuple(_Norm(getattr(attention, n)) for n in ("q_norm", "k_norm") if hasattr(attention, n))
        self._size: int = attention.head_dim
        self._scale: float = attention.scaling
        self._heads = attention.q_proj.out_features // self._size
        self._kv_heads = attention.k_proj.out_features // self._size
        self._qkv = _dense(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up = _dense(mlp.gate_proj, mlp.up_proj)
        self._out, self._down = _dense(attention.o_proj), _dense(mlp.down_proj)

    def refresh(self) -> None:
        for dense in (self._qkv, self._gate_up, self._out, self._down):
            dense.refresh()

    def __call__(self, index: int, hidden: Tensor, rotary: _Rotary, attend: _Attend) -> Tensor:
        split = self._heads + self._kv_heads
        heads = self._qkv(self._norms[0](hidden)).view(-1, split + self._kv_heads, self._size)
        rotated = heads[:, :split]
        if self._head_norms:
            parts = rotated[:, : self._heads], rotated[:, self._heads :]
            rotated = torch.cat([norm(part) for norm, part in zip(self._head_norms, parts, strict=True)], 1)
        rotated = rotary(rotated)
        queries, keys = rotated[:, : self._heads], rotated[:, self._heads :]
        attended = attend(index, queries, keys, heads[:, split:], self._scale)
        hidden = self._out.plus(attended, hidden)
        gate, up = self._gate_up(self._norms[1](hidden)).chunk(2, -1)
        return self._down.plus(functional.silu(gate).mul_(up), hidden)


def _dense(*modules: Any) -> Dense:
    return Dense([m.weight for m in modules], [m.bias for m in modules if m.bias is not None])


class LeanRunner:
    """`Runner` for the supported decoders."""

    def __init__(self, model: Any) -> None:
        self._embed: Any = model.model.embed_tokens
        self._rotary: Any = model.model.rotary_emb
        self._layers = [_Layer(module) for module in model.model.layers]
        self._norm = _Norm(model.model.norm)
        self._head = _dense(model.lm_head)

    def prefill(self, batch: PromptBatch, store: SlotStore) -> Tensor:
        """See `Runner`. Prompts are laid end to end; on a CPU, with one of padding that goes to no slot."""
        device = self._embed.weight.device
        ends = torch.tensor([len(prompt) for prompt in batch.prompts], device=device).cumsum(0) - 1
        count, rows = len(ends), sum(map(len, batch.prompts))
        if device.type == "cpu":
            ends = functional.pad(ends, (0, round_rows(count) - count))
            if padding := round_rows(rows) - rows:
                batch = PromptBatch((*batch.prompts, (0,) * padding), (*batch.slots, ()))
        tokens = torch.tensor([token for prompt in batch.prompts for token in prompt], device=device)
        positions = torch.cat([torch.arange(len(prompt), device=device) for prompt in batch.prompts])
        return self._head(self._norm(self._hidden(tokens, positions, _AttendPrompts(store, batch))[ends]))[:count]

    def decode(self, step: DecodeStep, store: SlotStore) -> Tensor:
        """See `Runner`."""
        return self._head(self._norm(self._hidden(step.tokens, step.positions, _AttendSlots(store, step))))

    def refresh(self) -> None:
        """Pack the weights again."""
        for layer in self._layers:
            layer.refresh()
        self._head.refresh()

    def _hidden(self, tokens: Tensor, positions: Tensor, attend: _Attend) -> Tensor:
        hidden: Tensor = self._embed(tokens)
        rotary = _Rotary(self._rotary, hidden, positions)
        for index, layer in enumerate(self._layers):
            hidden = layer(index, hidden, rotary, attend)
        return hidden
