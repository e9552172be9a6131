"""Evaluates the terms of an objective on one micro-batch and sums what they report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.logprob import TokenScores
from roll_core.contracts import LossInputs, Term
from roll_core.errors import BackendError
from roll_core.types import AnyArray, Batch

_OWN_FIELDS = frozenset({"advantages", "old_logprobs", "ref_logprobs", "values", "returns", "keep_counts", "keep_ids"})
OUTPUTS = frozenset({"logprobs", "full_logprobs", "entropy", "values"})
"""Model outputs a term may need."""


@dataclass(slots=True)
class Meter:
    """Sums of (value, count) pairs; the means come at the end."""

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, name: str, value: float, count: float = 1.0) -> None:
        """Add a value that is itself a sum over `count` things."""
        total, number = self.sums.get(name, (0.0, 0.0))
        self.sums[name] = (total + value, number + count)

    def means(self) -> dict[str, float]:
        """Mean of everything that was counted at least once."""
        return {name: value / count for name, (value, count) in self.sums.items() if count}

    def add_micro_batch(self, batch: Batch, layout: Layout, loss: Tensor) -> None:
        """Add what is known of every micro-batch: its loss, the tokens that count, and what was computed for them."""
        self.add("train/loss", float(loss.detach()), 0.0)
        self.add("train/tokens", float(batch.loss_mask[layout.source].sum()), 0.0)
        self.add("train/rows", layout.rows, 0.0)
        self.add("train/micro_batches", 1.0, 0.0)

    def summary(self, steps: int) -> dict[str, float]:
        """Means of what was counted; of the rest totals (tokens, rows, skipped steps), but losses are means a step.

        Args:
            steps: optimiser steps that were made.
        """
        out = self.means()
        for name, (value, count) in self.sums.items():
            if count == 0:
                is_loss = name.startswith("loss/") or name == "train/loss"
                out[name] = value / steps if is_loss else value
        return out


def needs_of(terms: Iterable[Term]) -> frozenset[str]:
    """Model outputs that some term needs.

    Raises:
        BackendError: a term needs something no model here can give.
    """
    needs: frozenset[str] = frozenset()
    for term in terms:
        unknown = term.needs - OUTPUTS
        if unknown:
            raise BackendError(
                f"term '{term.name}' needs {', '.join(sorted(unknown))}; models give {', '.join(sorted(OUTPUTS))}"
            )
        needs |= term.needs
    return needs


def loss_inputs(
    batch: Batch, layout: Layout, scores: TokenScores | None, values: Tensor | None, device: torch.device
) -> LossInputs:
    """What the terms see of one micro-batch, all tokens [n] of its segments end to end.

    Model outputs and log-probs are 0 where the policy sampled nothing. Without a column `old_logprobs` the step is
    the first one on these weights, so the old log-probs are the present ones, detached.
    """
    n = len(layout.source)
    zeros = torch.zeros(n, device=device)
    scored = torch.as_tensor(layout.scored, device=device)

    def placed(outputs: Tensor | None) -> Tensor | None:
        return None if outputs is None else zeros.index_put((scored,), outputs.float())

    def given(name: str) -> Tensor | None:
        return _tensor(batch.columns[name], layout, device) if name in batch.columns else None

    logprobs = placed(scores.logprobs) if scores is not None else zeros
    old = given("old_logprobs")
    advantages = given("advantages")
    return LossInputs(
        logprobs=logprobs if logprobs is not None else zeros,
        old_logprobs=old if old is not None else (logprobs if logprobs is not None else zeros).detach(),
        rollout_logprobs=_tensor(batch.rollout_logprobs, layout, device),
        advantages=advantages if advantages is not None else zeros,
        mask=_tensor(batch.loss_mask, layout, device),
        segment_ids=torch.as_tensor(layout.segment_ids, device=device),
        n_segments=layout.n_segments,
        entropy=placed(scores.entropy) if scores is not None else None,
        full_logprobs=placed(scores.full_logprobs) if scores is not None else None,
        ref_logprobs=given("ref_logprobs"),
        values=placed(values),
        old_values=given("values"),
        returns=given("returns"),
        columns=_other_columns(batch, layout, device),
    )


def evaluate(terms: Iterable[Term], inputs: LossInputs, layout: Layout, meter: Meter) -> Tensor:
    """Sum of all terms over the tokens of one micro-batch; micro-batches add up to the loss of the mini-batch.

    Raises:
        BackendError: a term's function returned something other than one value per token.
    """
    device = inputs.mask.device
    loss = torch.zeros((), device=device)
    for term in terms:
        own = replace(inputs, metrics={})
        if term.advantages is not None:
            own.advantages = _tensor(term.advantages, layout, device)
        if term.mask is not None:
            own.mask = _tensor(term.mask, layout, device)
        per_token = term.fn(own)
        if per_token.shape != inputs.mask.shape:
            raise BackendError(
                f"term '{term.name}' returned shape {tuple(per_token.shape)}, not one value for each of the "
                f"{len(inputs.mask)} tokens"
            )
        value = (_tensor(term.weights, layout, device) * per_token).sum()
        meter.add(f"loss/{term.name}", float(value.detach()), 0.0)
        for name, (total, count) in own.metrics.items():
            meter.add(name, float(total), float(count))
        loss = loss + value
    return loss


def _tensor(values: AnyArray, layout: Layout, device: torch.device) -> Tensor:
    """The micro-batch's share of a token column: floats as float32, integers as int64."""
    picked = values[layout.source]
    kind = picked.dtype.kind
    wide = picked if kind == "b" else picked.astype(np.float32 if kind == "f" else np.int64)
    return torch.as_tensor(wide, device=device)


def _other_columns(batch: Batch, layout: Layout, device: torch.device) -> Mapping[str, Tensor]:
    def per_token(name: str) -> bool:
        spec = batch.specs.get(name)
        column = batch.columns[name]
        numeric = column.dtype.kind in "bfiu"
        return numeric and (spec.level == "token" if spec is not None else len(column) == batch.n_tokens)

    names = sorted(batch.columns.keys() - _OWN_FIELDS)
    return {name: _tensor(batch.columns[name], layout, device) for name in names if per_token(name)}
