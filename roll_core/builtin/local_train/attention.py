"""Attention over a row of packed segments in which segments with the same prompt share its keys.

The tokens of a micro-batch lie on one row without padding. They fall into *buckets* of sequences of similar length:
the first bucket holds the prompts (causal among themselves), the others hold responses, which see their prompt and
their own past. Only inside this function are sequences padded, to the longest of their bucket. Scores exist for one
tile at a time; for all but short sequences the backward pass computes them again from queries and keys, so memory
grows linearly with the tokens (Dao et al. 2022, arXiv:2205.14135).
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

_CPU_TILE = 1 << 21
_GPU_TILE = 1 << 26

_SHORT = 128
"""Attention weights are kept for the backward pass where queries see at most this many keys on average, as they are
small then beside a layer's other activations; else they are computed again."""


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
    """How the tokens of one packed row see each other.

    buckets: prompts first; inverse [n]: each row's place in the buckets laid end to end.
    """

    buckets: tuple[Bucket, ...]
    inverse: Tensor

    @property
    def keeps_weights(self) -> bool:
        """Whether the backward pass finds the attention weights instead of computing them again."""
        scores = sum(bucket.rows.numel() * bucket.bias.shape[-1] for bucket in self.buckets)
        return scores <= _SHORT * len(self.inverse)


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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, scale: float) -> Tensor:  # noqa: PLR0917
        ctx.plan, ctx.scale = plan, scale
        outs: list[Tensor] = []
        kept: list[Tensor] = []
        for bucket in plan.buckets:
            work = _Work(bucket, plan.buckets[0], q, k, v, scale)
            parts = [work.forward(rows, kept if plan.keeps_weights else None) for rows in work.row_tiles()]
            outs.append(_unfold(_joined(parts)))
        ctx.save_for_backward(q, k, v, *kept)
        return torch.cat(outs).index_select(0, plan.inverse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, *kept = ctx.saved_tensors
        plan: AttentionPlan = ctx.plan
        first = plan.buckets[0]
        weights = iter(kept) if plan.keeps_weights else None
        shared = torch.zeros(2, *first.rows.shape, *k.shape[1:], dtype=_accumulator(k.dtype), device=k.device)
        d_queries: list[Tensor] = []
        d_own: list[Tensor] = []
        for bucket in plan.buckets:
            work = _Work(bucket, first, q, k, v, ctx.scale)
            upstream = _queries(grads[0], bucket, k.shape[1]).mul_(bucket.valid[:, None, None, :, None])
            parts = [work.backward(rows, upstream[rows], weights) for rows in work.row_tiles()]
            d_queries.append(_unfold(_joined([part[0] for part in parts])))
            d_kv = _joined([part[1] for part in parts], dim=1).transpose(2, 3)
            if bucket.prefix is None:
                shared += d_kv
                continue
            prompt = first.rows.shape[1]
            shared.index_add_(1, bucket.prefix, d_kv[:, :, :prompt].to(shared.dtype))
            d_own.append(d_kv[:, :, prompt:].flatten(1, 2))
        dq = torch.cat(d_queries).index_select(0, plan.inverse)
        dkv = torch.cat([shared.flatten(1, 2).to(k.dtype), *d_own], dim=1)
        return dq, dkv[0].index_select(0, plan.inverse), dkv[1].index_select(0, plan.inverse), None, None


class _Work:
    """One bucket's queries, keys and values, gathered, and attention over row tiles of it."""

    def __init__(self, bucket: Bucket, first: Bucket, q: Tensor, k: Tensor, v: Tensor, scale: float) -> None:  # noqa: PLR0917
        self._bucket, self._scale = bucket, scale
        self._query = _queries(q, bucket, k.shape[1]).mul_(scale)
        self._key, self._value = _keys(k, bucket, first), _keys(v, bucket, first)
        self._heads = q.shape[1]
        self._budget = _CPU_TILE if q.device.type == "cpu" else _GPU_TILE

    def row_tiles(self) -> list[slice]:
        """Sequences whose scores fit the budget together."""
        b, q = self._bucket.rows.shape
        many = max(1, min(b, self._budget // (self._heads * q * self._key.shape[2])))
        return [slice(start, min(b, start + many)) for start in range(0, b, many)]

    def _query_tiles(self, sequences: int) -> Iterator[tuple[slice, int]]:
        """Queries whose scores fit the budget, and how many keys they can see."""
        q, k = self._bucket.rows.shape[1], self._key.shape[2]
        step = q if sequences > 1 else max(1, min(q, self._budget // (self._heads * k)))
        for low in range(0, q, step):
            high = min(q, low + step)
            yield slice(low, high), k - q + high

    def _weights(self, rows: slice, query: Tensor, cols: slice, keys: int) -> Tensor:
        """Softmax of the scores: [b, kv_heads, per * q, keys].

        It is taken in float32 and rounded after: on a CPU the kernel for bfloat16 is several times slower.
        """
        b, kv_heads, per, q, _ = query.shape
        bias = self._bucket.bias if self._bucket.bias.shape[0] == 1 else self._bucket.bias[rows]
        scores = torch.matmul(query.flatten(2, 3), self._key[rows, :, :keys].transpose(2, 3))
        scores.view(b, kv_heads, per, q, keys).add_(bias[:, None, None, cols, :keys])
        return torch.softmax(scores, dim=-1, dtype=_accumulator(scores.dtype)).to(scores.dtype)

    def forward(self, rows: slice, kept: list[Tensor] | None) -> Tensor:
        """Outputs [b, kv_heads, per, q, d] of a row tile; its weights are appended to `kept`."""
        outs = []
        for cols, keys in self._query_tiles(rows.stop - rows.start):
            query = self._query[rows, :, :, cols]
            weights = self._weights(rows, query, cols, keys)
            outs.append(torch.matmul(weights, self._value[rows, :, :keys]).view(query.shape))
            if kept is not None:
                kept.append(weights)
        return _joined(outs, dim=3)

    def backward(self, rows: slice, upstream: Tensor, kept: Iterator[Tensor] | None) -> tuple[Tensor, Tensor]:
        """Gradients of a row tile: queries [b, kv_heads, per, q, d], keys and values [2, b, kv_heads, k, d]."""
        d_query = []
        d_kv: Tensor | None = None
        tiles = list(self._query_tiles(rows.stop - rows.start))
        for cols, keys in tiles:
            query, up = self._query[rows, :, :, cols], upstream[:, :, :, cols].flatten(2, 3)
            weights = next(kept) if kept is not None else self._weights(rows, query, cols, keys)
            d_weights = torch.matmul(up, self._value[rows, :, :keys].transpose(2, 3))
            d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            d_query.append(torch.matmul(d_scores, self._key[rows, :, :keys]).view(query.shape).mul_(self._scale))
            d_key = torch.matmul(d_scores.transpose(2, 3), query.flatten(2, 3))
            found = torch.stack([d_key, torch.matmul(weights.transpose(2, 3), up)])
            if len(tiles) == 1:
                return d_query[0], found
            if d_kv is None:
                shape = (2, *self._key[rows].shape)
                d_kv = torch.zeros(shape, dtype=_accumulator(found.dtype), device=found.device)
            d_kv[:, :, :, :keys] += found
        if d_kv is None:
            raise ValueError("a bucket has no queries")
        return _joined(d_query, dim=3), d_kv.to(self._key.dtype)


def _joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


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
