"""The driver's side: shares the work out over the ranks and puts their answers together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_train.model import empty_column
from roll_core.builtin.local_train.objective import Meter, needs_of
from roll_core.cluster import Executor, LocalExecutor, Stuck, WorkerGroup, WorkerLost, WorkerSpec
from roll_core.cluster.errors import RemoteTracebackError
from roll_core.contracts import MiniBatch, TensorInfo, TrainSetup, WeightSource
from roll_core.errors import BackendError, RollError
from roll_core.types import Batch, FloatArray, IndexArray
from roll_plugin_fsdp.messages import Published, Refused, Report, Work
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.shares import cut, cut_terms, places_of, shares

_TEACHER = "logprobs@"


class FsdpStrategy:
    """Trains a causal language model over the ranks of a process group (`contracts.TrainStrategy`).

    A request that no rank could have carried out (a segment too long, a term of the wrong shape) is refused and leaves
    the ranks as they were. When a rank is lost, hangs, or fails inside an exchange, all are ended, since the others
    cannot go on without it; the error says which rank it was. A new strategy then goes on from a checkpoint.

    Args:
        setup: model, optimiser, and which further models are needed.
        options: mesh, memory and bounds.
        executor: starts the ranks; None starts them on this machine, and ends them with `close`.

    Raises:
        BackendError: a model cannot be loaded, or not be used as asked.
        WorkerLost, Stuck, PlacementError: ranks could not be started.
    """

    rank_factory = "roll_plugin_fsdp.rank:make_rank"
    """What every rank is made by."""

    def __init__(self, setup: TrainSetup, options: FsdpOptions, executor: Executor | None = None) -> None:
        self._setup = setup
        starter: Executor = LocalExecutor() if executor is None else executor
        self._own = starter if executor is None else None
        device = _device(options)
        self._options = options.model_copy(update={"device": device})
        self._ended = ""
        spec = WorkerSpec(
            role="actor",
            factory=self.rank_factory,
            count=options.world_size,
            kwargs={"setup": setup, "options": self._options.model_dump()},
            gpus=1.0 if device == "cuda" else 0.0,
            cpus=options.cpus_per_rank,
        )
        try:
            self._group: WorkerGroup = starter.start(spec, timeout_s=options.start_timeout_s)
        except BaseException:
            if self._own is not None:
                self._own.close()
            raise

    # --- TrainStrategy ------------------------------------------------------------------------------------------------

    def compute(self, batch: Batch, columns: frozenset[str]) -> dict[str, FloatArray]:
        """Token columns [N] without gradient; 0 where the policy sampled nothing.

        Raises:
            BackendError: a column this strategy cannot compute, or a model it needs was not set up.
        """
        self._check_columns(columns)
        parts = shares(batch, np.arange(batch.n_segments, dtype=np.int64), self._options.data_parallel)
        work = [(cut(batch, segments), columns) for segments in parts]
        answers = self._scatter("compute", work, f"columns {', '.join(sorted(columns))}")
        out = {name: empty_column(batch) for name in columns}
        for segments, found in zip(parts, answers, strict=True):
            places = places_of(batch, segments)
            for name, column in out.items():
                column[places] = found[name]
        return out

    def update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        """One optimiser step per mini-batch; returns means over what was counted on all ranks.

        A gradient that is not finite leaves the weights as they were on all ranks, and is counted in
        `train/skipped_steps`.

        Raises:
            BackendError: a mini-batch is empty, a segment too long, or a term needs what no model here gives.
        """
        self._check_mini_batches(mini_batches)
        works: list[list[Work]] = [[] for _ in range(self._options.data_parallel)]
        for mini in mini_batches:
            for own, segments in zip(works, shares(batch, mini.segments, len(works)), strict=True):
                own.append(_work(batch, mini, segments))
        reports: list[Report] = self._scatter(
            "update", [(own,) for own in works], f"{len(mini_batches)} optimiser steps"
        )
        return _metrics(reports, len(mini_batches))

    def weight_source(self) -> WeightSource:
        """The policy's weights in the format it computes with, gathered one tensor at a time as they are read."""
        return RankWeights(self)

    def save(self, folder: Path) -> None:
        """Write every rank's shards into an existing, empty folder that all ranks see."""
        self.begin_save(folder)
        self.finish_save()

    def begin_save(self, folder: Path) -> None:
        """Copy the state and begin to write it; training may go on before `finish_save`.

        Raises:
            CheckpointError: it could not be begun.
        """
        self.call("begin_save", folder.resolve(), what=f"copying the state for '{folder}'", is_long=True)

    def finish_save(self) -> None:
        """Wait until everything of the last `begin_save` is on disk.

        Raises:
            CheckpointError: it could not be written.
        """
        self.call("finish_save", what="writing the checkpoint", is_long=True)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote, with any number of ranks; bit for bit with the same number.

        Raises:
            CheckpointError: it is missing, damaged, or of a run with other settings.
        """
        self.call("load", folder.resolve(), what=f"reading '{folder}'", is_long=True)

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder: adapters merged, tokenizer included.

        Raises:
            CheckpointError: it cannot be written.
        """
        self.call("export", folder.resolve(), what=f"exporting to '{folder}'", is_long=True)

    def close(self) -> None:
        """End the ranks."""
        self._end("closed")

    # --- ranks --------------------------------------------------------------------------------------------------------

    def call(self, method: str, *args: Any, what: str, is_long: bool = False) -> list[Any]:
        """Call a method of every rank; answers in rank order. See `_scatter` for what it raises."""
        return self._ask(method, [args] * self._options.world_size, what, is_long=is_long)

    def _scatter(self, method: str, per_share: Sequence[tuple[Any, ...]], what: str) -> list[Any]:
        """Call a method with arguments by share of the data; one answer a share.

        Raises:
            RollError: what some rank refused the request with.
            WorkerLost, Stuck: a rank has ended or does not answer; all are ended.
            BackendError: a rank failed inside an exchange; all are ended.
        """
        split = self._options.tensor_parallel
        answers = self._ask(method, [args for args in per_share for _ in range(split)], what)
        return answers[::split]

    def _ask(self, method: str, args: Sequence[tuple[Any, ...]], what: str, *, is_long: bool = False) -> list[Any]:
        if self._ended:
            raise BackendError(f"the ranks are gone ({self._ended}); build the strategy again and load a checkpoint")
        limit = self._options.start_timeout_s if is_long else self._options.step_timeout_s
        try:
            answers = self._group.scatter(method, args, timeout_s=limit, what=what)
        except (WorkerLost, Stuck) as error:
            self._end(str(error).partition("\n")[0])
            raise
        except Exception as error:
            if not isinstance(error.__cause__, RemoteTracebackError):
                if isinstance(error, RollError):
                    raise
                raise BackendError(
                    f"'{method}' cannot be sent to the ranks: {error}; define the functions of the objective at the "
                    "top level of a module that they can import"
                ) from error
            self._end(f"a rank failed in '{method}'")
            if isinstance(error, RollError):
                raise
            notes = "; ".join(getattr(error, "__notes__", ()))
            raise BackendError(
                f"a rank failed in {what}, and all were ended: {type(error).__name__}: {error} ({notes})"
            ) from error
        _raise_refusal(method, answers)
        return answers

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = why
            self._group.close()
            if self._own is not None:
                self._own.close()

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_columns(self, columns: frozenset[str]) -> None:
        setup = self._setup
        present = {"old_logprobs", "entropy", *(f"{_TEACHER}{name}" for name in setup.teachers)}
        present |= {"ref_logprobs"} if setup.reference is not None else set()
        present |= {"values"} if setup.critic is not None else set()
        for name in sorted(columns - present):
            if name in {"ref_logprobs", "values"} or name.startswith(_TEACHER):
                raise BackendError(f"column '{name}' was asked for, but no model for it was set up")
            raise BackendError(f"column '{name}' cannot be computed; there are {', '.join(sorted(present))}")

    def _check_mini_batches(self, mini_batches: Sequence[MiniBatch]) -> None:
        if not mini_batches:
            raise BackendError("there is no mini-batch to train on")
        for mini in mini_batches:
            if not len(mini.segments):
                raise BackendError("a mini-batch without segments cannot be trained on")
            if "values" in needs_of(mini.terms) and self._setup.critic is None:
                raise BackendError("values were asked for, but no critic was set up")


class RankWeights:
    """A `WeightSource` that gathers from the ranks while it is read; at most one piece of it exists in the driver."""

    def __init__(self, strategy: FsdpStrategy) -> None:
        self._strategy = strategy

    def manifest(self) -> Sequence[TensorInfo]:
        """Name, dtype and shape of every tensor, in the order of `tensors`."""
        found: Sequence[TensorInfo] = self._strategy.call("manifest", what="the names of the weights")[0]
        return found

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor in host memory, one after the other.

        Raises:
            BackendError: the weights were asked for again meanwhile.
        """
        stream = self._strategy.call("open_weights", what="publishing weights")[0]
        while True:
            piece: Published | None = self._strategy.call("next_weights", stream, what="publishing weights")[0]
            if piece is None:
                return
            for info, array in zip(piece.infos, piece.arrays, strict=True):
                flat = torch.from_numpy(np.array(array)).view(getattr(torch, info.dtype))
                yield info.name, flat.reshape(info.shape)


def make_strategy(*, setup: TrainSetup, executor: Executor | None = None, **options: Any) -> FsdpStrategy:
    """Build the strategy from the options of a config; the component's factory."""
    return FsdpStrategy(setup, FsdpOptions(**options), executor)


def _raise_refusal(method: str, answers: Sequence[Any]) -> None:
    """Raise the error of the first rank that could not carry a request out, if any."""
    refused = {rank: answer for rank, answer in enumerate(answers) if isinstance(answer, Refused)}
    for rank, answer in refused.items():
        if answer.error is not None:
            answer.error.add_note(f"raised by rank {rank} in '{method}'; all ranks left the request")
            raise answer.error from RemoteTracebackError(f"\n{answer.trace}")
    if refused:
        raise BackendError(f"the ranks refused '{method}' without a reason")


def _work(batch: Batch, mini: MiniBatch, segments: IndexArray) -> Work:
    return Work(cut(batch, segments), cut_terms(mini.terms, places_of(batch, segments)))


def _metrics(reports: Sequence[Report], steps: int) -> dict[str, float]:
    """Means of what was counted; totals for tokens, rows, micro-batches and skipped steps, means a step for losses.

    `train/rank_imbalance` is the rows of the busiest share over the mean, 1 when all are equal.
    """
    meter = Meter(dict(reports[0].common))
    for report in reports:
        for name, (value, count) in report.sums.items():
            meter.add(name, value, count)
    out = meter.means()
    for name, (value, count) in meter.sums.items():
        if count == 0:
            is_loss = name.startswith("loss/") or name == "train/loss"
            out[name] = value / steps if is_loss else value
    rows = [report.sums.get("train/rows", (0.0, 0.0))[0] for report in reports]
    out["train/rank_imbalance"] = max(rows) * len(rows) / max(sum(rows), 1.0)
    return out


def _device(options: FsdpOptions) -> str:
    """Where ranks compute; "auto" asks what the driver sees."""
    if options.device != "auto":
        return options.device
    return "cuda" if torch.cuda.is_available() else "cpu"
