"""Checks of `contracts.TrainStrategy`, on a tiny random model and the supervised term."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from roll_core.contracts import LossInputs, MiniBatch, OptimSettings, Term, TrainSetup, TrainStrategy
from roll_core.testing.cases import StrategyCases
from roll_core.testing.context import tiny_model
from roll_core.testing.fakes import make_batch
from roll_core.testing.kit import CheckFailed, MissingCases, Subject, check
from roll_core.types import Batch, SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

_NEEDS = ("torch", "transformers")
_UPDATES = 20
_ALLOWED = 0.05
"""Allowed difference of two layouts, as a share of the change of the log-probs (bfloat16 compute is that coarse)."""


def _batch() -> Batch:
    batch = make_batch([5, 9, 3, 7, 6, 4], prompt_lengths=[4, 4, 6, 6, 3, 3], groups=[0, 0, 1, 1, 2, 2])
    batch.sampling = {name: SamplingParams() for name in batch.domains}
    return batch


def _supervised(inputs: LossInputs) -> Tensor:
    return -inputs.logprobs


def _work(batch: Batch) -> list[MiniBatch]:
    mask = batch.loss_mask
    weights = (mask / mask.sum()).astype(np.float32)
    return [MiniBatch(np.arange(batch.n_segments, dtype=np.int64), (Term("supervised", _supervised, weights),))]


def _logprobs(strategy: TrainStrategy, batch: Batch) -> Any:
    column = strategy.compute(batch, frozenset({"old_logprobs"}))["old_logprobs"]
    if column.shape != (batch.n_tokens,) or not np.isfinite(column[batch.response_mask]).all():
        raise CheckFailed(f"old_logprobs has shape {column.shape} or is not finite; expected [{batch.n_tokens}]")
    return column[batch.response_mask]


@check("train_strategies", needs=_NEEDS)
def computes_token_columns(subject: Subject) -> None:
    """`compute` returns the columns asked for, one finite value per token, and the same twice."""
    strategy, batch = subject.build(), _batch()
    try:
        columns = strategy.compute(batch, frozenset({"old_logprobs", "entropy"}))
        if set(columns) < {"old_logprobs", "entropy"}:
            raise CheckFailed(f"asked for old_logprobs and entropy, got {sorted(columns)}")
        if (columns["entropy"][batch.response_mask] < -1e-4).any():
            raise CheckFailed("an entropy is negative")
        if not np.array_equal(_logprobs(strategy, batch), _logprobs(strategy, batch)):
            raise CheckFailed("the same weights gave other log-probs: switch dropout off in forward passes")
    finally:
        strategy.close()


@check("train_strategies", needs=_NEEDS)
def overfits_one_batch(subject: Subject) -> None:
    """Updates on one batch raise its log-probs well."""
    strategy, batch = subject.build(), _batch()
    try:
        before = float(_logprobs(strategy, batch).mean())
        for _ in range(_UPDATES):
            metrics = strategy.update(batch, _work(batch))
        after = float(_logprobs(strategy, batch).mean())
        if not after > before + 0.5:
            raise CheckFailed(f"after {_UPDATES} updates the mean log-prob went from {before:.3f} to {after:.3f}")
        if any(not np.isfinite(value) for value in metrics.values()):
            raise CheckFailed(f"update() returned a metric that is not finite: {metrics}")
    finally:
        strategy.close()


@check("train_strategies", needs=_NEEDS)
def restores_bit_equal(subject: Subject) -> None:
    """A strategy that loads what another saved goes on exactly as that one does."""
    batch, folder = _batch(), subject.folder / "saved"
    folder.mkdir()
    first = subject.build()
    try:
        first.update(batch, _work(batch))
        first.save(folder)
        first.update(batch, _work(batch))
        expected = _logprobs(first, batch)
    finally:
        first.close()
    second = subject.build()
    try:
        second.load(folder)
        second.update(batch, _work(batch))
        if not np.array_equal(_logprobs(second, batch), expected):
            raise CheckFailed("after load() the next update differs: save optimiser, schedule and random states too")
    finally:
        second.close()


@check("train_strategies", needs=_NEEDS)
def accumulates_like_a_large_batch(subject: Subject) -> None:
    """Small and large micro-batches (option sets of its cases) give the same update."""
    cases = subject.require_cases(StrategyCases)
    if len(cases.accumulation) < 2:
        raise MissingCases("its cases name no option sets that split the work differently")
    found = []
    for options in cases.accumulation:
        strategy, batch = subject.component.build({**subject.options, **options}, setup=_linear_setup()), _batch()
        try:
            before = _logprobs(strategy, batch)
            strategy.update(batch, _work(batch))
            found.append(_logprobs(strategy, batch) - before)
        finally:
            strategy.close()
    first, size = dict(cases.accumulation[0]), float(np.abs(found[0]).max())
    for options, change in zip(cases.accumulation[1:], found[1:], strict=True):
        worst = float(np.abs(change - found[0]).max())
        if worst > _ALLOWED * size:
            raise CheckFailed(
                f"{first} moves log-probs by up to {size:.4f}, {dict(options)} differs from that by up to {worst:.4f}"
            )


def _linear_setup() -> TrainSetup:
    """AdamW with so large an eps that a step is proportional to the gradient, hence rounding is not amplified."""
    optim = OptimSettings(lr=20.0, eps=100.0, betas=(0.0, 0.0), clip_norm=0.0)
    return TrainSetup(model=tiny_model(0), optim=optim, total_steps=100)


@check("train_strategies", needs=_NEEDS)
def publishes_its_weights(subject: Subject) -> None:
    """The weight source's tensors are those of its manifest, and change with an update."""
    strategy, batch = subject.build(), _batch()
    try:
        source = strategy.weight_source()
        manifest = {info.name: info.shape for info in source.manifest()}
        before = {name: tensor.detach().clone() for name, tensor in source.tensors()}
        if {name: tuple(tensor.shape) for name, tensor in before.items()} != manifest:
            raise CheckFailed("tensors() and manifest() disagree about names or shapes")
        strategy.update(batch, _work(batch))
        after = dict(strategy.weight_source().tensors())
        if all(bool((after[name] == tensor).all()) for name, tensor in before.items()):
            raise CheckFailed("an update left every published tensor as it was")
    finally:
        strategy.close()


@check("train_strategies", needs=_NEEDS)
def exports_a_model_folder(subject: Subject) -> None:
    """`export` writes config, weights and tokenizer in Hugging Face format."""
    folder = subject.folder / "export"
    folder.mkdir()
    strategy = subject.build()
    try:
        strategy.export(folder)
    finally:
        strategy.close()
    present = {path.name for path in folder.iterdir()}
    if "config.json" not in present or not any(n.endswith(".safetensors") for n in present):
        raise CheckFailed(f"the export holds only {sorted(present)}")
    if not present & {"tokenizer.json", "tokenizer_config.json"}:
        raise CheckFailed("the export has no tokenizer: it could not be used alone")
