"""Lays the segments of a micro-batch out for the model.

*packed*: every token on one row, segments of a group with the same prompt share its tokens. *padded*: one row per
segment, padded on the right, for models whose attention cannot be replaced. In both, a segment's last token is left
out of the model's input, since nothing is predicted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_train.attention import AttentionPlan, Bucket
from roll_core.errors import BackendError
from roll_core.types import AnyArray, Batch, BoolArray, IndexArray

_WASTE = 1.5
"""Padded scores of a bucket may exceed the real ones by this factor before a new bucket is opened."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A micro-batch of whole segments, `n` tokens end to end, of which `m` are scored (sampled by the policy).

    input_ids [b, l]; position_ids [b, l] or None for 0, 1, 2 …; plan: who sees whom on a packed row; source [n] the
    tokens' places in the batch; segment_ids [n] in 0 … n_segments - 1; scored [m] places in [n]; predictors [m] rows
    of the flattened hidden states that predict them.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    plan: AttentionPlan | None
    source: IndexArray
    segment_ids: IndexArray
    n_segments: int
    scored: IndexArray
    predictors: Tensor

    @property
    def rows(self) -> int:
        """Rows the model computes, padding included."""
        return self.input_ids.numel()


def prompt_lengths(batch: Batch) -> IndexArray:
    """Tokens before the first sampled one, per segment [S]; a segment without sampled tokens is all prompt."""
    lengths = batch.lengths.copy()
    places = np.flatnonzero(batch.response_mask)
    owners, first = np.unique(batch.token_segment[places], return_index=True)
    lengths[owners] = places[first] - batch.offsets[owners]
    return lengths


def prompt_keys(batch: Batch, segments: IndexArray) -> list[tuple[int, bytes]]:
    """Equal for segments of one group whose prompts are token for token the same."""
    lengths = prompt_lengths(batch)
    groups = batch.rollout_group[batch.segment_rollout]
    starts = batch.offsets
    return [(int(groups[s]), batch.token_ids[starts[s] : starts[s] + lengths[s]].tobytes()) for s in segments]


def packed_layout(batch: Batch, segments: IndexArray, device: torch.device, dtype: torch.dtype) -> Layout:
    """All tokens of `segments` on one row, prompts shared; `dtype` is what the model computes in.

    Raises BackendError as `_tokens_of` does.
    """
    source, segment_ids, scored = _tokens_of(batch, segments)
    lengths, prompts = batch.lengths[segments], prompt_lengths(batch)[segments]
    keys = prompt_keys(batch, segments)
    order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    prefix = np.array([order[key] for key in keys], dtype=np.int64)
    heads = np.unique(prefix, return_index=True)[1]
    own = np.maximum(lengths - 1 - prompts, 0)
    sizes = np.concatenate([prompts[heads], own])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    begin = batch.offsets[segments]
    places = np.concatenate([begin[heads], begin + prompts])
    row_source = np.repeat(places - starts[:-1], sizes) + np.arange(starts[-1])
    local = np.concatenate([np.zeros(len(heads), np.int64), prompts])
    positions = np.repeat(local - starts[:-1], sizes) + np.arange(starts[-1])
    inside = np.arange(len(source)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    before = inside[scored] - 1
    seg = segment_ids[scored]
    on_prompt = before < prompts[seg]
    predictors = np.where(on_prompt, starts[prefix[seg]] + before, starts[len(heads) + seg] + before - prompts[seg])
    plan = _plan(_Shape(prompts[heads], own, prefix, starts), device, dtype)
    return Layout(
        input_ids=_long(batch.token_ids[row_source], device)[None],
        position_ids=_long(positions, device)[None],
        plan=plan,
        source=source,
        segment_ids=segment_ids,
        n_segments=len(segments),
        scored=scored,
        predictors=_long(predictors, device),
    )


def padded_layout(batch: Batch, segments: IndexArray, device: torch.device) -> Layout:
    """One row per segment, padded on the right. Raises BackendError as `_tokens_of` does."""
    source, segment_ids, scored = _tokens_of(batch, segments)
    lengths = batch.lengths[segments]
    width = max(1, int(lengths.max()) - 1)
    ids = np.zeros((len(segments), width), np.int64)
    for row, s in enumerate(segments):
        tokens = batch.token_ids[batch.offsets[s] : batch.offsets[s + 1]][:width]
        ids[row, : len(tokens)] = tokens
    inside = np.arange(len(source)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    predictors = segment_ids[scored] * width + inside[scored] - 1
    return Layout(
        input_ids=_long(ids, device),
        position_ids=None,
        plan=None,
        source=source,
        segment_ids=segment_ids,
        n_segments=len(segments),
        scored=scored,
        predictors=_long(predictors, device),
    )


def _tokens_of(batch: Batch, segments: IndexArray) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Source [n], segment ids [n] and scored places of `segments` end to end.

    Raises:
        BackendError: no segments, an empty one, or one whose very first token counts as sampled.
    """
    if len(segments) == 0:
        raise BackendError("a mini-batch without segments cannot be trained on")
    lengths = batch.lengths[segments]
    if lengths.min() == 0:
        raise BackendError(f"segment {int(segments[lengths.argmin()])} of the batch has no tokens")
    ends = np.cumsum(lengths)
    source = np.repeat(batch.offsets[segments] - (ends - lengths), lengths) + np.arange(ends[-1])
    mask: BoolArray = batch.response_mask[source]
    if mask[ends - lengths].any():
        bad = int(segments[mask[ends - lengths].argmax()])
        raise BackendError(f"the first token of segment {bad} counts as sampled, but no token before it predicts it")
    segment_ids = np.repeat(np.arange(len(segments), dtype=np.int64), lengths)
    return source.astype(np.int64), segment_ids, np.flatnonzero(mask).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """Tokens of each prompt and each response, which prompt a response continues, and where on the row all start.

    In `starts` the prompts come first, then the responses, then the end.
    """

    prompts: IndexArray
    own: IndexArray
    prefix: IndexArray
    starts: IndexArray


def _plan(shape: _Shape, device: torch.device, dtype: torch.dtype) -> AttentionPlan:
    n_prompts, longest = len(shape.prompts), int(shape.prompts.max())
    rows, valid = _rows(shape.starts[:n_prompts], shape.prompts)
    buckets = [_bucket(rows, valid, _bias(_future(longest)[None], device, dtype))]
    places, rows_of = [valid.ravel()], [rows.ravel()]
    for members in _similar(shape):
        rows, valid = _rows(shape.starts[n_prompts + members], shape.own[members])
        b, q = rows.shape
        prefix = shape.prefix[members]
        beyond = np.arange(longest)[None, :] >= shape.prompts[prefix][:, None]
        unseen = [np.broadcast_to(beyond[:, None], (b, q, longest)), np.broadcast_to(_future(q), (b, q, q))]
        bias = _bias(np.concatenate(unseen, axis=2), device, dtype)
        buckets.append(_bucket(rows, valid, bias, prefix))
        places.append(valid.ravel())
        rows_of.append(rows.ravel())
    kept, flat = np.concatenate(places), np.concatenate(rows_of)
    inverse = np.empty(int(kept.sum()), np.int64)
    inverse[flat[kept]] = np.flatnonzero(kept)
    return AttentionPlan(tuple(buckets), _long(flat, device), _long(inverse, device))


def _future(length: int) -> BoolArray:
    """True where a query [length] must not see a key [length] because it comes later."""
    return np.triu(np.ones((length, length), np.bool_), 1)


def _rows(starts: IndexArray, sizes: IndexArray) -> tuple[IndexArray, BoolArray]:
    """Row numbers [b, longest] of sequences on the packed row (0 where padded), and which are real."""
    columns = np.arange(int(sizes.max()))[None, :]
    valid = columns < sizes[:, None]
    return np.where(valid, starts[:, None] + columns, 0), valid


def _similar(shape: _Shape) -> list[IndexArray]:
    """Split the non-empty responses into buckets of similar length, so that few scores are padding."""
    own, longest = shape.own, int(shape.prompts.max())
    order = [int(i) for i in np.argsort(own, kind="stable") if own[i] > 0]
    buckets: list[list[int]] = []
    real = 0
    for i in order:
        size = int(own[i]) * int(own[i] + longest)
        real += size
        if not buckets or size * (len(buckets[-1]) + 1) > _WASTE * real:
            buckets.append([])
            real = size
        buckets[-1].append(i)
    return [np.array(sorted(bucket), dtype=np.int64) for bucket in buckets]


def _bucket(rows: IndexArray, valid: BoolArray, bias: Tensor, prefix: IndexArray | None = None) -> Bucket:
    device = bias.device
    real = torch.as_tensor(valid, device=device)
    return Bucket(_long(rows, device), real, bias, None if prefix is None else _long(prefix, device))


def _bias(unseen: BoolArray, device: torch.device, dtype: torch.dtype) -> Tensor:
    """-inf where a key must not be seen, else 0."""
    bias = torch.zeros(unseen.shape, dtype=dtype, device=device)
    return bias.masked_fill_(torch.as_tensor(np.ascontiguousarray(unseen), device=device), float("-inf"))


def _long(values: AnyArray | Sequence[int], device: torch.device) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(values, dtype=np.int64), device=device)
