"""The driver's side: shares the work out over the ranks and puts their answers together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_train.columns import VALUES, check_columns
from roll_core.builtin.local_train.model import empty_column
from roll_core.builtin.local_train.objective import Meter, needs_of
from roll_core.cluster import Executor
from roll_core.contracts import MiniBatch, TensorInfo, TrainSetup, WeightSource
from roll_core.errors import BackendError
from roll_core.types import Batch, FloatArray, IndexArray
from roll_plugin_fsdp.messages import Published, Report, Work
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.shares import cut, cut_terms, places_of, shares
from roll_plugin_fsdp.team import Team


class FsdpStrategy:
    """Trains a causal language model over the ranks of a process group (`contracts.TrainStrategy`).

    A request that some rank cannot carry out (a segment too long, a term of the wrong shape) is left by all, and its
    error raised; the ranks can go on. When a rank is lost, hangs, or fails alone inside an exchange, all are ended,
    since the others cannot go on without it; the error says which rank it was. A new strategy then goes on from a
    checkpoint.

    Args:
        setup: model, optimiser, and which further models are needed.
        options: mesh, memory and bounds.
        executor: starts the ranks; None starts them on this machine, and ends them with `close`.

    Raises:
        ConfigError: the options contradict the placement or each other.
        BackendError: a model cannot be loaded, or not be used as asked.
        WorkerLost, Stuck, PlacementError: ranks could not be started.
    """

    rank_factory = "roll_plugin_fsdp.rank:make_rank"
    """What every rank is made by."""

    def __init__(self, setup: TrainSetup, options: FsdpOptions, executor: Executor | None = None) -> None:
        self._setup = setup
        self.team = Team(self.rank_factory, setup, options, executor)
        """The ranks."""

    # --- TrainStrategy ------------------------------------------------------------------------------------------------

    def compute(self, batch: Batch, columns: frozenset[str]) -> dict[str, FloatArray]:
        """Token columns [N] without gradient; 0 where the policy sampled nothing.

        Raises:
            BackendError: a column this strategy cannot compute, or a model it needs was not set up.
        """
        check_columns(self._setup, columns)
        parts = shares(batch, np.arange(batch.n_segments, dtype=np.int64), self.team.mesh.data_parallel)
        work = [(cut(batch, segments), columns) for segments in parts]
        answers = self.team.scatter("compute", work, f"columns {', '.join(sorted(columns))}")
        out = {name: empty_column(batch) for name in columns}
        for segments, found in zip(parts, answers, strict=True):
            places = places_of(batch, segments)
            for name, column in out.items():
                column[places] = found[name]
        return out

    def update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        """One optimiser step per mini-batch; returns means over what was counted on all ranks.

        A gradient that is not finite leaves the weights as they were on all ranks, and is counted in
        `train/skipped_steps`. A mini-batch that cannot be computed ends the update; the steps of those before it stay.

        Raises:
            BackendError: a mini-batch is empty, a segment too long, or a term needs what no model here gives.
        """
        self._check_mini_batches(mini_batches)
        works: list[list[Work]] = [[] for _ in range(self.team.mesh.data_parallel)]
        for mini in mini_batches:
            for own, segments in zip(works, shares(batch, mini.segments, len(works)), strict=True):
                own.append(_work(batch, mini, segments))
        reports = self.team.scatter("update", [(own,) for own in works], f"{len(mini_batches)} optimiser steps")
        return _metrics(reports, len(mini_batches))

    def weight_source(self) -> WeightSource:
        """The policy's weights in the format it computes with, gathered one tensor at a time as they are read."""
        return RankWeights(self.team)

    def save(self, folder: Path) -> None:
        """Write every rank's shards into an existing, empty folder that all ranks see.

        Raises:
            CheckpointError: it cannot be written.
        """
        self.begin_save(folder)
        self.finish_save()

    def begin_save(self, folder: Path) -> None:
        """Copy the state into host memory, and begin to write it into an existing, empty folder that all ranks see.

        When this returns, what is going to be saved is fixed, and training may go on. `finish_save` has to come before
        the next `begin_save`; only then is the folder whole.

        Raises:
            CheckpointError: it could not be begun, or the last one has not been finished.
        """
        self.team.call("begin_save", folder.resolve(), what=f"copying the state for '{folder}'", is_long=True)

    def has_saved(self) -> bool:
        """Whether `finish_save` would return at once."""
        return all(self.team.call("has_saved", what="the state of the checkpoint"))

    def finish_save(self) -> None:
        """Wait until everything of the last `begin_save` is on disk; without one this does nothing.

        Raises:
            CheckpointError: it could not be written. Another one may be begun.
        """
        self.team.call("finish_save", what="writing the checkpoint", is_long=True)

    def load(self, folder: Path) -> None:
        """Go on from what was saved, with any number of ranks; bit for bit with the same number.

        Raises:
            CheckpointError: it is missing, damaged, or of a run with other settings.
        """
        self.team.call("load", folder.resolve(), what=f"reading '{folder}'", is_long=True)

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder: adapters merged, tokenizer included.

        Raises:
            CheckpointError: it cannot be written.
        """
        self.team.call("export", folder.resolve(), what=f"exporting to '{folder}'", is_long=True)

    def close(self) -> None:
        """End the ranks; once more, or after a loss, does nothing."""
        self.team.end("closed")

    def _check_mini_batches(self, mini_batches: Sequence[MiniBatch]) -> None:
        if not mini_batches:
            raise BackendError("there is no mini-batch to train on")
        for mini in mini_batches:
            if not len(mini.segments):
                raise BackendError("a mini-batch without segments cannot be trained on")
            if VALUES in needs_of(mini.terms) and self._setup.critic is None:
                raise BackendError("values were asked for, but no critic was set up")


class RankWeights:
    """A `WeightSource` that gathers from the ranks while it is read; at most one piece of it exists in the driver."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def manifest(self) -> Sequence[TensorInfo]:
        """Name, dtype and shape of every tensor, in the order of `tensors`."""
        found: Sequence[TensorInfo] = self._team.call("manifest", what="the names of the weights")[0]
        return found

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor in host memory, one after the other.

        Raises:
            BackendError: the weights were asked for again meanwhile.
        """
        stream = self._team.call("open_weights", what="publishing weights")[0]
        while True:
            piece: Published | None = self._team.call("next_weights", stream, what="publishing weights")[0]
            if piece is None:
                return
            for info, array in zip(piece.infos, piece.arrays, strict=True):
                flat = torch.from_numpy(np.array(array)).view(getattr(torch, info.dtype))
                yield info.name, flat.reshape(info.shape)


def make_strategy(*, setup: TrainSetup, executor: Executor | None = None, **options: Any) -> FsdpStrategy:
    """Build the strategy from the options of a config; the component's factory."""
    return FsdpStrategy(setup, FsdpOptions(**options), executor)


def _work(batch: Batch, mini: MiniBatch, segments: IndexArray) -> Work:
    return Work(cut(batch, segments), cut_terms(mini.terms, places_of(batch, segments)))


def _metrics(reports: Sequence[Report], steps: int) -> dict[str, float]:
    """The summary of all ranks' sums; `train/rank_imbalance` is the rows of the busiest share over the mean."""
    meter = Meter(dict(reports[0].common))
    for report in reports:
        for name, (value, count) in report.own.items():
            meter.add(name, value, count)
    rows = [report.own.get("train/rows", (0.0, 0.0))[0] for report in reports]
    imbalance = max(rows) * len(rows) / max(sum(rows), 1.0)
    return {**meter.summary(steps), "train/rank_imbalance": imbalance}
