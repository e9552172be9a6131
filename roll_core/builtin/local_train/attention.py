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

    buckets: prompts first; order [t]: the rows of all buckets end to end, padding included; inverse [n]: each row's
    place in that.
    """

    buckets: tuple[Bucket, ...]
    order: Tensor
    inverse: Tensor

    @property
    def sizes(self) -> list[int]:
        """Rows of each bucket, padding included."""
        return [bucket.rows.numel() for bucket in self.buckets]

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
    """(q [n, heads, d], k [n, kv_heads, d], v [n, kv_heads, d]) -> [n, heads, d].

    Inside, the three lie side by side as [n, heads + 2 * kv_heads, d], so that rows are gathered once.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, scale: float) -> Tensor:  # noqa: PLR0917
        ctx.plan, ctx.scale, ctx.kv_heads = plan, scale, k.shape[1]
        joint = torch.cat([q, k, v], dim=1)
        outs: list[Tensor] = []
        kept: list[Tensor] = []
        for work in _works(joint, plan, k.shape[1], scale):
            parts = [work.forward(rows, kept if plan.keeps_weights else None) for rows in work.row_tiles()]
            outs.append(_by_row(_joined(parts)).flatten(0, 1))
        ctx.save_for_backward(joint, *kept)
        return torch.cat(outs).index_select(0, plan.inverse)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        joint, *kept = ctx.saved_tensors
        plan: AttentionPlan = ctx.plan
        weights = iter(kept) if plan.keeps_weights else None
        upstream = grads[0].index_select(0, plan.order)
        works = list(_works(joint, plan, ctx.kv_heads, ctx.scale))
        shared = torch.zeros_like(works[0].key_value, dtype=_accumulator(joint.dtype))
        found: list[tuple[Tensor, Tensor]] = []
        for work, rows in zip(works, torch.split_with_sizes(upstream, plan.sizes), strict=True):
            d_query, d_kv = work.backward_all(rows, weights)
            own = work.bucket.rows.shape[1]
            if work.bucket.prefix is None:
                shared += d_kv
            else:
                shared.index_add_(1, work.bucket.prefix, d_kv[:, :, :, :-own].to(shared.dtype))
            found.append((d_query, d_kv[:, :, :, -own:]))
        found[0] = (found[0][0], shared.to(joint.dtype))
        flat = [torch.cat([_by_row(d_q), _kv_by_row(d_kv)], dim=2).flatten(0, 1) for d_q, d_kv in found]
        d_joint = torch.cat(flat).index_select(0, plan.inverse)
        kv_heads = ctx.kv_heads
        dq, dk, dv = torch.split_with_sizes(d_joint, [joint.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
        return dq, dk, dv, None, None


class _Work:
    """Attention over tiles of one bucket.

    Holds its scaled queries [b, kv_heads, per, q, d] and its keys and values [2, b, kv_heads, k, d]: the `per` query
    heads that read one key head lie together.
    """

    def __init__(self, bucket: Bucket, query: Tensor, key_value: Tensor, scale: float) -> None:
        self.bucket, self.key_value = bucket, key_value
        self._query, self._scale = query, scale
        self._heads = query.shape[1] * query.shape[2]
        self._budget = _CPU_TILE if query.device.type == "cpu" else _GPU_TILE

    def row_tiles(self) -> list[slice]:
        """Sequences whose scores fit the budget together."""
        b, q = self.bucket.rows.shape
        many = max(1, min(b, self._budget // (self._heads * q * self.key_value.shape[3])))
        return [slice(start, min(b, start + many)) for start in range(0, b, many)]

    def _query_tiles(self, sequences: int) -> Iterator[tuple[slice, int]]:
        """Queries whose scores fit the budget, and how many keys they can see."""
        q, k = self.bucket.rows.shape[1], self.key_value.shape[3]
        step = q if sequences > 1 else max(1, min(q, self._budget // (self._heads * k)))
        for low in range(0, q, step):
            high = min(q, low + step)
            yield slice(low, high), k - q + high

    def _weights(self, rows: slice, query: Tensor, cols: slice, keys: int) -> Tensor:
        """Softmax of the scores: [b, kv_heads, per * q, keys].

        It is taken in float32 and rounded after: on a CPU the kernel for bfloat16 is several times slower.
        """
        b, kv_heads, per, q, _ = query.shape
        bias = self.bucket.bias if self.bucket.bias.shape[0] == 1 else self.bucket.bias[rows]
        scores = torch.matmul(query.flatten(2, 3), self.key_value[0, rows, :, :keys].transpose(2, 3))
        scores.view(b, kv_heads, per, q, keys).add_(bias[:, None, None, cols, :keys])
        return torch.softmax(scores, dim=-1, dtype=_accumulator(scores.dtype)).to(scores.dtype)

    def forward(self, rows: slice, kept: list[Tensor] | None) -> Tensor:
        """Outputs [b, kv_heads, per, q, d] of a row tile; its weights are appended to `kept`."""
        outs = []
        for cols, keys in self._query_tiles(rows.stop - rows.start):
            query = self._query[rows, :, :, cols]
            weights = self._weights(rows, query, cols, keys)
            outs.append(torch.matmul(weights, self.key_value[1, rows, :, :keys]).view(query.shape))
            if kept is not None:
                kept.append(weights)
        return _joined(outs, dim=3)

    def backward_all(self, upstream: Tensor, kept: Iterator[Tensor] | None) -> tuple[Tensor, Tensor]:
        """Gradients of queries, keys and values from that of the outputs [b * q, heads, d]."""
        b, q = self.bucket.rows.shape
        up = upstream.view(b, q, *self._query.shape[1:3], -1) * self.bucket.valid[:, :, None, None, None]
        up = up.permute(0, 2, 3, 1, 4).contiguous()
        parts = [self._backward(rows, up[rows], kept) for rows in self.row_tiles()]
        return _joined([part[0] for part in parts]), _joined([part[1] for part in parts], dim=1)

    def _backward(self, rows: slice, upstream: Tensor, kept: Iterator[Tensor] | None) -> tuple[Tensor, Tensor]:
        """Gradients of a row tile: queries [b, kv_heads, per, q, d], keys and values [2, b, kv_heads, k, d]."""
        d_query = []
        tiles = list(self._query_tiles(rows.stop - rows.start))
        d_kv = torch.zeros_like(self.key_value[:, rows], dtype=_accumulator(upstream.dtype)) if len(tiles) > 1 else None
        for cols, keys in tiles:
            query, up = self._query[rows, :, :, cols], upstream[:, :, :, cols].flatten(2, 3)
            weights = next(kept) if kept is not None else self._weights(rows, query, cols, keys)
            d_weights = torch.matmul(up, self.key_value[1, rows, :, :keys].transpose(2, 3))
            d_scores = torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            d_scaled = torch.matmul(d_scores, self.key_value[0, rows, :, :keys])
            d_query.append(d_scaled.view(query.shape).mul_(self._scale))
            d_key = torch.matmul(d_scores.transpose(2, 3), query.flatten(2, 3))
            found = torch.stack([d_key, torch.matmul(weights.transpose(2, 3), up)])
            if d_kv is None:
                return d_query[0], found
            d_kv[:, :, :, :keys].add_(found)
        if d_kv is None:
            raise ValueError("a bucket has no queries")
        return _joined(d_query, dim=3), d_kv.to(upstream.dtype)


def _works(joint: Tensor, plan: AttentionPlan, kv_heads: int, scale: float) -> Iterator[_Work]:
    """Gather the rows of every bucket; the prompts' keys go before those of the responses to them."""
    prompts: Tensor | None = None
    gathered = torch.split_with_sizes(joint.index_select(0, plan.order), plan.sizes)
    for bucket, rows in zip(plan.buckets, gathered, strict=True):
        (b, q), d, heads = bucket.rows.shape, joint.shape[2], joint.shape[1] - 2 * kv_heads
        by_head = rows.view(b, q, -1, d)
        query = by_head[:, :, :heads].view(b, q, kv_heads, -1, d).permute(0, 2, 3, 1, 4)
        kv = by_head[:, :, heads:].view(b, q, 2, kv_heads, d).permute(2, 0, 3, 1, 4)
        if bucket.prefix is None or prompts is None:
            kv = prompts = kv.contiguous()
        else:
            kv = torch.cat([prompts.index_select(1, bucket.prefix), kv], dim=3)
        yield _Work(bucket, query.clone(memory_format=torch.contiguous_format).mul_(scale), kv, scale)


def _by_row(x: Tensor) -> Tensor:
    """[b, kv_heads, per, q, d] -> [b, q, heads, d]."""
    return x.permute(0, 3, 1, 2, 4).flatten(2, 3)


def _kv_by_row(x: Tensor) -> Tensor:
    """[2, b, kv_heads, q, d] -> [b, q, 2 * kv_heads, d]."""
    return x.permute(1, 3, 0, 2, 4).flatten(2, 3)


def _joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
