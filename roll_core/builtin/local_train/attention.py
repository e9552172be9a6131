"""Attention over a row of packed segments in which segments with the same prompt share its keys.

The tokens of a micro-batch lie on one row without padding. They fall into *buckets* of sequences of similar length:
the first bucket holds the prompts (causal among themselves), the others hold responses, which see their prompt and
their own past. Only inside this function are sequences padded, to the longest of their bucket. Scores exist for one
tile at a time, forward and backward; the backward pass computes them again from queries and keys, so memory grows
linearly with the tokens (Dao et al. 2022, arXiv:2205.14135).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ATTENTION_NAME = "roll_packed"
"""Name under which the function is registered with transformers."""

PLAN_KEY = "roll_attention_plan"
"""Keyword that carries the `AttentionPlan` from the model's call down to its attention layers."""

_CPU_TILE = 1 << 20
_GPU_TILE = 1 << 26


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Sequences that attend together.

    rows [b, q] row of each query in the packed row (0 where padded); valid [b, q] False where padded; bias
    [b or 1, q, k] added to the scores, -inf where a query must not see a key, else 0; prefix [b] which prompt each
    sequence continues (its keys come first), None for the bucket of prompts. Key j is never seen by query i where
    j > i + (k - q).
    """

    rows: Tensor
    valid: Tensor
    bias: Tensor
    prefix: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class AttentionPlan:
    """How the tokens of one packed row see each other: buckets (prompts first) and inverse [n], each row's place in
    the buckets laid end to end.
    """

    buckets: tuple[Bucket, ...]
    inverse: Tensor


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function for transformers' `AttentionInterface`.

    Args:
        module: the attention layer (unused).
        query: [1, heads, n, d].
        key: [1, kv_heads, n, d].
        value: [1, kv_heads, n, d].
        attention_mask: must be None; the plan says who sees whom.
        scaling: factor of the scores; None means d ** -0.5.
        dropout: must be 0.
        kwargs: holds the plan under `PLAN_KEY`.

    Returns:
        [1, n, heads, d] and None (no attention weights).

    Raises:
        ValueError: no plan was given, or the layer asks for something this function does not compute.
    """
    plan = kwargs.get(PLAN_KEY)
    asked = [name for name in ("softcap", "s_aux", "position_bias", "sliding_window") if kwargs.get(name) is not None]
    if plan is None or attention_mask is not None or dropout or asked:
        raise ValueError(
            f"{ATTENTION_NAME} attention needs a plan and supports no mask, dropout or {asked or 'extras'}"
        )
    scale = float(scaling) if scaling is not None else query.shape[-1] ** -0.5
    flat = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    out: Tensor = _PackedAttention.apply(*flat, plan, scale)  # type: ignore[no-untyped-call]  # torch's stub
    return out.unsqueeze(0), None


def register() -> None:
    """Make the function known to transformers; no mask function is registered, so models build none."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, packed_attention)


class _PackedAttention(torch.autograd.Function):
    """(q [n, heads, d], k [n, kv_heads, d], v [n, kv_heads, d]) -> [n, heads, d]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.plan, ctx.scale = plan, scale
        outs = [_forward_bucket(bucket, plan.buckets[0], q, k, v, scale) for bucket in plan.buckets]
        return torch.cat(outs).index_select(0, plan.inverse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v = ctx.saved_tensors
        plan: AttentionPlan = ctx.plan
        first = plan.buckets[0]
        shared = torch.zeros(2, *first.rows.shape, *k.shape[1:], dtype=_accumulator(k.dtype), device=k.device)
        parts = [_backward_bucket(bucket, first, q, k, v, grads[0], ctx.scale, shared) for bucket in plan.buckets]
        own = [shared.flatten(1, 2)] + [part[1] for part in parts[1:]]
        dq = torch.cat([part[0] for part in parts]).index_select(0, plan.inverse)
        dkv = torch.cat([part.to(k.dtype) for part in own], dim=1)
        return dq, dkv[0].index_select(0, plan.inverse), dkv[1].index_select(0, plan.inverse), None, None


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _queries(x: Tensor, bucket: Bucket, kv_heads: int) -> Tensor:
    """Gather [n, heads, d] into [b, kv_heads, heads per kv head, q, d]: queries of one key head lie together."""
    b, q = bucket.rows.shape
    gathered = x.index_select(0, bucket.rows.flatten()).view(b, q, kv_heads, -1, x.shape[-1])
    return gathered.permute(0, 2, 3, 1, 4).contiguous()


def _keys(x: Tensor, bucket: Bucket, first: Bucket) -> Tensor:
    """Gather [n, kv_heads, d] into [b, kv_heads, k, d]: the prompt's rows, then the sequence's own."""
    gathered = x.index_select(0, bucket.rows.flatten()).view(*bucket.rows.shape, *x.shape[1:])
    if bucket.prefix is not None:
        prompts = x.index_select(0, first.rows.flatten()).view(*first.rows.shape, *x.shape[1:])
        gathered = torch.cat([prompts.index_select(0, bucket.prefix), gathered], dim=1)
    return gathered.transpose(1, 2).contiguous()


def _unfold(x: Tensor) -> Tensor:
    """[b, kv_heads, per, q, d] -> [b * q, heads, d]."""
    b, kv_heads, per, q, d = x.shape
    return x.permute(0, 3, 1, 2, 4).reshape(b * q, kv_heads * per, d)


def _tiles(bucket: Bucket, heads: int, device: torch.device) -> Iterator[tuple[slice, slice, int]]:
    """Cut a bucket so that the scores of a tile stay in cache: sequences, queries, and the keys they can see."""
    b, q = bucket.rows.shape
    k = bucket.bias.shape[-1]
    budget = _CPU_TILE if device.type == "cpu" else _GPU_TILE
    many = max(1, min(b, budget // (heads * q * k)))
    long = max(1, min(q, budget // (heads * k)))
    for start in range(0, b, many):
        for low in range(0, q, long if many == 1 else q):
            high = min(q, low + long) if many == 1 else q
            yield slice(start, min(b, start + many)), slice(low, high), k - q + high


def _probabilities(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """Softmax of the scaled scores: [b, kv_heads, per, q, d] x [b, kv_heads, k, d] -> [b, kv_heads, per * q, k].

    It is taken in float32 and rounded after: on a CPU the kernel for bfloat16 is several times slower.
    """
    b, kv_heads, per, q, _ = query.shape
    scores = torch.matmul(query.flatten(2, 3), key.transpose(2, 3)).view(b, kv_heads, per, q, -1)
    scores.add_(bias[:, None, None])
    return torch.softmax(scores, dim=-1, dtype=_accumulator(scores.dtype)).to(scores.dtype).flatten(2, 3)


def _bias(bucket: Bucket, rows: slice, cols: slice, keys: int) -> Tensor:
    bias = bucket.bias if bucket.bias.shape[0] == 1 else bucket.bias[rows]
    return bias[:, cols, :keys]


def _forward_bucket(bucket: Bucket, first: Bucket, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    query = _queries(q, bucket, k.shape[1]).mul_(scale)
    key, value = _keys(k, bucket, first), _keys(v, bucket, first)
    out = torch.empty_like(query)
    for rows, cols, keys in _tiles(bucket, q.shape[1], q.device):
        part = query[rows, :, :, cols]
        weights = _probabilities(part, key[rows, :, :keys], _bias(bucket, rows, cols, keys))
        out[rows, :, :, cols] = torch.matmul(weights, value[rows, :, :keys]).view_as(part)
    return _unfold(out)


def _backward_bucket(
    bucket: Bucket, first: Bucket, q: Tensor, k: Tensor, v: Tensor, grad: Tensor, scale: float, shared: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the bucket's queries [b * q, heads, d] and own keys and values [2, b * q, kv_heads, d].

    What falls on the prompts is added to `shared` [2, prompts, longest prompt, kv_heads, d].
    """
    query = _queries(q, bucket, k.shape[1]).mul_(scale)
    upstream = _queries(grad, bucket, k.shape[1]).mul_(bucket.valid[:, None, None, :, None])
    key, value = _keys(k, bucket, first), _keys(v, bucket, first)
    d_query = torch.empty_like(query)
    d_kv = torch.zeros(2, *key.shape, dtype=shared.dtype, device=key.device)
    for rows, cols, keys in _tiles(bucket, q.shape[1], q.device):
        part, up = query[rows, :, :, cols], upstream[rows, :, :, cols].flatten(2, 3)
        weights = _probabilities(part, key[rows, :, :keys], _bias(bucket, rows, cols, keys))
        d_kv[1, rows, :, :keys] += torch.matmul(weights.transpose(2, 3), up)
        d_weights = torch.matmul(up, value[rows, :, :keys].transpose(2, 3))
        d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        d_query[rows, :, :, cols] = torch.matmul(d_scores, key[rows, :, :keys]).view_as(part)
        d_kv[0, rows, :, :keys] += torch.matmul(d_scores.transpose(2, 3), part.flatten(2, 3))
    by_key = d_kv.transpose(2, 3)
    prompt = 0 if bucket.prefix is None else first.rows.shape[1]
    if bucket.prefix is None:
        shared += by_key
    else:
        shared.index_add_(1, bucket.prefix, by_key[:, :, :prompt].contiguous())
    return _unfold(d_query.mul_(scale)), by_key[:, :, prompt:].flatten(1, 2)
