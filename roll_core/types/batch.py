"""The batch of a step, and what credit reads of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roll_core.types.arrays import AnyArray, BoolArray, FloatArray, IndexArray, IntArray
from roll_core.types.generation import SamplingParams
from roll_core.types.rollout import ColumnSpec, RolloutGroup, Segment


@dataclass(slots=True, eq=False)
class Batch:
    """Segments laid end to end, with everything credit and a strategy read.

    Rows are sorted by (ticket, sample, segment). Shapes: token_ids, response_mask, loss_mask, rollout_logprobs [N];
    offsets [S + 1] (segment s is `offsets[s]:offsets[s + 1]`); segment_rollout [S]; rollout_group, rollout_domain,
    rewards, scores, rollout_ids [B]. Further columns live in `columns` and are described by `specs`.
    """

    token_ids: IntArray
    offsets: IndexArray
    response_mask: BoolArray
    loss_mask: BoolArray
    rollout_logprobs: FloatArray
    segment_rollout: IndexArray
    rollout_group: IndexArray
    rollout_domain: IndexArray
    domains: tuple[str, ...]
    rewards: FloatArray
    scores: FloatArray
    columns: dict[str, AnyArray] = field(default_factory=dict)
    specs: dict[str, ColumnSpec] = field(default_factory=dict)
    sampling: dict[str, SamplingParams] = field(default_factory=dict)
    """Sampling parameters by domain: the trainer computes log-probs of the same distribution."""

    @property
    def n_tokens(self) -> int:
        """N: tokens of all segments, prompts included."""
        return int(self.offsets[-1])

    @property
    def n_segments(self) -> int:
        """S."""
        return len(self.offsets) - 1

    @property
    def n_rollouts(self) -> int:
        """B."""
        return len(self.rollout_group)

    @property
    def lengths(self) -> IndexArray:
        """Tokens of each segment [S]."""
        return np.diff(self.offsets)

    @property
    def token_segment(self) -> IndexArray:
        """Segment of each token [N]."""
        return np.repeat(np.arange(self.n_segments, dtype=np.int64), self.lengths)

    @property
    def token_rollout(self) -> IndexArray:
        """Rollout of each token [N]."""
        return self.segment_rollout[self.token_segment]

    @property
    def token_domain(self) -> IndexArray:
        """Domain index of each token [N]."""
        return self.rollout_domain[self.token_rollout]

    def add(self, name: str, values: AnyArray, spec: ColumnSpec | None = None) -> None:
        """Attach a token-level column (or whatever `spec` declares).

        Raises:
            ValueError: the column's first axis does not fit its level.
        """
        spec = spec or ColumnSpec(name, str(values.dtype))
        rows = {"token": self.n_tokens, "segment": self.n_segments, "rollout": self.n_rollouts}.get(spec.level)
        if rows is not None and len(values) != rows:
            raise ValueError(f"column '{name}' has {len(values)} rows, its level '{spec.level}' needs {rows}")
        self.columns[name] = values
        self.specs[name] = spec


@dataclass(frozen=True, slots=True, eq=False)
class AdvantageInputs:
    """What an advantage estimator reads (numpy, on the driver).

    rewards [B] terminal reward of each rollout; token_rewards [N] dense rewards (per-turn, or -kl_coef * KL), zeros
    when there are none; groups [B] group index; segment_rollout [S]; offsets [S + 1]; response_mask [N].
    Present only when the estimator's requirements ask: values [N], greedy_rewards [B].
    """

    rewards: FloatArray
    groups: IndexArray
    offsets: IndexArray
    segment_rollout: IndexArray
    response_mask: BoolArray
    token_rewards: FloatArray
    values: FloatArray | None = None
    greedy_rewards: FloatArray | None = None
    columns: Mapping[str, AnyArray] = field(default_factory=dict)
    """Every other column the estimator's requirements name, cut to these rollouts."""

    @property
    def token_rollout(self) -> IndexArray:
        """Rollout of each token [N]."""
        lengths = np.diff(self.offsets)
        return self.segment_rollout[np.repeat(np.arange(len(lengths)), lengths)]

    @property
    def lengths(self) -> IndexArray:
        """Sampled tokens of each rollout [B]."""
        return np.bincount(self.token_rollout[self.response_mask], minlength=len(self.rewards)).astype(np.int64)

    def totals(self) -> FloatArray:
        """Terminal reward plus the sum of dense rewards over sampled tokens, per rollout [B]."""
        dense = np.bincount(
            self.token_rollout, weights=self.token_rewards * self.response_mask, minlength=len(self.rewards)
        )
        return (self.rewards + dense).astype(np.float32)

    def broadcast(self, per_rollout: AnyArray) -> FloatArray:
        """Spread a value per rollout [B] over its sampled tokens [N]; 0 elsewhere."""
        return np.where(self.response_mask, per_rollout[self.token_rollout], 0.0).astype(np.float32)

    def group_sum(self, per_rollout: AnyArray) -> AnyArray:
        """Sum a value per rollout over its group, given back per rollout [B]."""
        return np.bincount(self.groups, weights=per_rollout)[self.groups]

    def group_size(self) -> AnyArray:
        """Number of rollouts in each rollout's group [B], as float64."""
        return self.group_sum(np.ones(len(self.groups)))

    def group_mean(self, per_rollout: AnyArray) -> AnyArray:
        """Mean over the group, given back per rollout [B], as float64."""
        return self.group_sum(per_rollout) / self.group_size()


@dataclass(frozen=True, slots=True, eq=False)
class Advantages:
    """An estimator's result: advantages [N] (0 off the mask) and, where a critic is trained, its target returns [N]."""

    advantages: FloatArray
    returns: FloatArray | None = None


def batch_of(groups: Sequence[RolloutGroup], domains: Sequence[str]) -> Batch:
    """Lay the scored rollouts of `groups` end to end, sorted by (ticket, sample, segment).

    Args:
        groups: admitted groups.
        domains: names of the run's domains; `rollout_domain` indexes them.
    """
    ordered = sorted(groups, key=lambda g: g.ticket.id)
    rows = [(k, r) for k, g in enumerate(ordered) for r in sorted(g.scored, key=lambda r: r.index)]
    segments = [(b, s) for b, (_, r) in enumerate(rows) for s in r.segments]
    lengths = [len(s.token_ids) for _, s in segments]
    index = {name: i for i, name in enumerate(domains)}

    def concat(arrays: list[AnyArray], dtype: Any) -> AnyArray:
        return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)

    batch = Batch(
        token_ids=concat([s.token_ids for _, s in segments], np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        response_mask=concat([s.response_mask for _, s in segments], np.bool_),
        loss_mask=concat([s.loss_mask for _, s in segments], np.bool_),
        rollout_logprobs=concat([s.rollout_logprobs for _, s in segments], np.float32),
        segment_rollout=np.array([b for b, _ in segments], dtype=np.int64),
        rollout_group=np.array([k for k, _ in rows], dtype=np.int64),
        rollout_domain=np.array([index[r.ticket.domain] for _, r in rows], dtype=np.int64),
        domains=tuple(domains),
        rewards=np.array([r.reward for _, r in rows], dtype=np.float32),
        scores=np.array([r.score for _, r in rows], dtype=np.float32),
    )
    if any("keep_counts" in s.columns for _, s in segments):
        batch.add("keep_counts", concat([_keep_counts(s) for _, s in segments], np.int32))
        kept = [s.columns["keep_ids"] for _, s in segments if "keep_ids" in s.columns]
        batch.add("keep_ids", concat(kept, np.int32), ColumnSpec("keep_ids", "int32", "ragged"))
    for name in sorted({c for _, s in segments for c in s.columns} - {"keep_counts", "keep_ids"}):
        batch.add(name, np.concatenate([s.columns[name] for _, s in segments]))
    return batch


def _keep_counts(segment: Segment) -> AnyArray:
    return segment.columns.get("keep_counts", np.zeros(len(segment.token_ids), np.int32))
