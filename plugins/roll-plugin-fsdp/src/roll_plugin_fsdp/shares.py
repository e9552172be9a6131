"""Shares the segments of a mini-batch out over ranks by the tokens they cost, and cuts the batch to a share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roll_core.builtin.local_train.layout import prompt_keys, prompt_lengths
from roll_core.cluster import balanced_shards
from roll_core.contracts import Term
from roll_core.errors import BackendError
from roll_core.types import AnyArray, Batch, IndexArray

_PIECES = 4
"""Segments with one prompt stay together up to this fraction of a rank's fair share."""


def shares(batch: Batch, segments: IndexArray, ranks: int) -> list[IndexArray]:
    """Segments of each rank, rising; ranks beyond the number of segments get none.

    Segments with the same prompt stay together as far as balance allows, since a rank computes their prompt once.

    Args:
        batch: what `segments` index.
        segments: what is to be shared out.
        ranks: how many shares.
    """
    units = _units(batch, segments, ranks)
    shards = balanced_shards([cost for cost, _ in units], ranks)
    return [np.sort(np.array([s for unit in shard for s in units[unit][1]], dtype=np.int64)) for shard in shards]


def _units(batch: Batch, segments: IndexArray, ranks: int) -> list[tuple[int, list[int]]]:
    """Sets of segments with one prompt, none above its limit unless it is a single segment, with their tokens."""
    prompts, lengths = prompt_lengths(batch), batch.lengths
    by_prompt: dict[tuple[int, bytes], list[int]] = {}
    for segment, key in zip(segments, prompt_keys(batch, segments), strict=True):
        by_prompt.setdefault(key, []).append(int(segment))
    total = sum(int(prompts[m[0]]) + sum(int(lengths[s] - prompts[s]) for s in m) for m in by_prompt.values())
    limit = total / (ranks * _PIECES)
    units: list[tuple[int, list[int]]] = []
    for members in by_prompt.values():
        prompt = int(prompts[members[0]])
        cost, unit = prompt, list[int]()
        for segment in members:
            own = int(lengths[segment]) - prompt
            if unit and cost + own > limit:
                units.append((cost, unit))
                cost, unit = prompt, []
            cost += own
            unit.append(segment)
        units.append((cost, unit))
    return units


def places_of(batch: Batch, segments: IndexArray) -> IndexArray:
    """Places [n] in the batch of the tokens of `segments`, end to end."""
    lengths = batch.lengths[segments]
    ends = np.cumsum(lengths)
    if not len(segments):
        return np.zeros(0, np.int64)
    return np.repeat(batch.offsets[segments] - (ends - lengths), lengths) + np.arange(ends[-1], dtype=np.int64)


def cut(batch: Batch, segments: IndexArray) -> Batch:
    """The batch of `segments` alone, with their rollouts and all columns.

    Raises:
        BackendError: a column whose rows cannot be told apart by segment.
    """
    places = places_of(batch, segments)
    rollouts, owners = np.unique(batch.segment_rollout[segments], return_inverse=True)
    part = Batch(
        token_ids=batch.token_ids[places],
        offsets=np.concatenate([[0], np.cumsum(batch.lengths[segments])]).astype(np.int64),
        response_mask=batch.response_mask[places],
        loss_mask=batch.loss_mask[places],
        rollout_logprobs=batch.rollout_logprobs[places],
        segment_rollout=owners.astype(np.int64),
        rollout_group=batch.rollout_group[rollouts],
        rollout_domain=batch.rollout_domain[rollouts],
        domains=batch.domains,
        rewards=batch.rewards[rollouts],
        scores=batch.scores[rollouts],
        specs=dict(batch.specs),
        sampling=dict(batch.sampling),
    )
    for name, column in batch.columns.items():
        part.columns[name] = _column(batch, name, column, (places, segments, rollouts))
    return part


def cut_terms(terms: Sequence[Term], places: IndexArray) -> tuple[Term, ...]:
    """The terms with their weights, advantages and masks [N] cut to the tokens at `places`."""
    return tuple(
        replace(
            term,
            weights=term.weights[places],
            advantages=None if term.advantages is None else term.advantages[places],
            mask=None if term.mask is None else term.mask[places],
        )
        for term in terms
    )


def _column(batch: Batch, name: str, column: AnyArray, chosen: tuple[IndexArray, IndexArray, IndexArray]) -> AnyArray:
    places, segments, rollouts = chosen
    spec = batch.specs.get(name)
    level = spec.level if spec is not None else ("ragged" if name == "keep_ids" else "token")
    if level == "ragged":
        return _ragged(batch, column, places)
    if level == "group":
        return column  # rows are looked up by `rollout_group`, which keeps its numbers
    picked = {"token": places, "segment": segments, "rollout": rollouts}[level]
    if len(picked) and len(column) <= int(picked.max()):
        raise BackendError(f"column '{name}' has {len(column)} rows, too few for its level '{level}'")
    return column[picked]


def _ragged(batch: Batch, column: AnyArray, places: IndexArray) -> AnyArray:
    """Rows of `keep_ids` that belong to the tokens at `places`, as `keep_counts` says."""
    counts = batch.columns["keep_counts"].astype(np.int64)
    mine = counts[places]
    starts = (np.cumsum(counts) - counts)[places]
    before = np.cumsum(mine) - mine
    return column[np.repeat(starts - before, mine) + np.arange(int(mine.sum()))]
