"""What an objective is made of: the terms of a mini-batch, and what a term sees of one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roll_core.types import BoolArray, FloatArray, IndexArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, eq=False)
class LossInputs:
    """What a term of the objective sees of one micro-batch (torch, [n] tokens of whole segments end to end).

    `logprobs` carries the gradient; everything else is detached. `old_logprobs` are the trainer's log-probs at the
    start of the step (equal to `logprobs.detach()` when a step makes a single update), `rollout_logprobs` those of
    the engine that sampled. `mask` is the loss mask. Absent inputs are None; a term names what it needs.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    rollout_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    segment_ids: Tensor
    n_segments: int
    entropy: Tensor | None = None
    full_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    values: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def segment_sum(self, per_token: Tensor) -> Tensor:
        """Sum a value per token [n] over each segment's loss mask -> [n_segments]."""
        zeros = per_token.new_zeros(self.n_segments)
        return zeros.index_add(0, self.segment_ids, per_token * self.mask)

    def segment_mean(self, per_token: Tensor) -> Tensor:
        """Mean over each segment's loss mask -> [n_segments]; 0 for a segment without counted tokens."""
        counts = self.segment_sum(self.mask.to(per_token.dtype))
        return self.segment_sum(per_token) / counts.clamp_min(1)

    def per_token(self, per_segment: Tensor) -> Tensor:
        """Spread a value per segment [n_segments] over its tokens [n]."""
        return per_segment[self.segment_ids]

    def metric(self, name: str, per_token: Tensor) -> None:
        """Report the mean of `per_token` [n] over the loss mask; summed exactly over micro-batches and ranks."""
        value = (per_token.detach().float() * self.mask).sum()
        count = self.mask.sum().float()
        total = self.metrics.get(name)
        self.metrics[name] = (value, count) if total is None else (total[0] + value, total[1] + count)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One term of the objective: `sum(weights * fn(inputs))` over all tokens of the optimiser mini-batch.

    `weights` [N] float32 already holds coefficient, domain selector, mask, correction and denominator (computed
    over the whole mini-batch before any split), so micro-batch sums add up exactly. `needs` names outputs the model
    must produce: `logprobs`, `full_logprobs`, `entropy`, `values`.
    """

    name: str
    fn: Callable[[LossInputs], Tensor]
    weights: FloatArray
    needs: frozenset[str] = frozenset({"logprobs"})
    advantages: FloatArray | None = None
    """The advantages [N] this term reads, where they differ by domain; None for the batch's column."""
    mask: BoolArray | None = None
    """Tokens [N] this term is about, a part of the loss mask; the strategy hands it to `fn` as `LossInputs.mask`, so
    that means and metrics see no other tokens. None for the batch's loss mask."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """One optimiser step: the segments it covers (indices into the batch) and its terms."""

    segments: IndexArray
    terms: tuple[Term, ...]
