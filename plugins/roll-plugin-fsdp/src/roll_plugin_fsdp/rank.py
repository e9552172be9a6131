"""One rank: its shards of the models, and what the driver asks of it. All methods are called on every rank at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roll_core.builtin.device import resolve_dtype
from roll_core.builtin.local_train.columns import OWN, REFERENCE, VALUES, frozen_folders
from roll_core.builtin.local_train.model import empty_column, spread
from roll_core.builtin.local_train.weights import ModelWeights
from roll_core.contracts import TensorInfo, TrainSetup
from roll_core.errors import BackendError, CheckpointError
from roll_core.types import Batch, FloatArray
from roll_plugin_fsdp.checkpoints import PendingSave, load_sharded, read_record
from roll_plugin_fsdp.messages import Published, Refused, Report, Work
from roll_plugin_fsdp.models import Builder, Scorer, Valuer
from roll_plugin_fsdp.optimizer import ShardedOptimizer, Shards
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.passes import Pass
from roll_plugin_fsdp.processes import Ranks, join, wait_for_all
from roll_plugin_fsdp.publish import export_sharded, pieces
from roll_plugin_fsdp.update import Trainer


class Rank:
    """The worker object of role "actor".

    Args:
        setup: model, optimiser, and which further models are needed.
        options: memory and bounds; `device` is "cpu" or "cuda".
        ranks: the process group it belongs to.

    Raises:
        BackendError: a model cannot be loaded, or not be laid out as asked.
    """

    def __init__(self, setup: TrainSetup, options: FsdpOptions, ranks: Ranks) -> None:
        self._setup = setup
        self._ranks = ranks
        self._dtype = resolve_dtype(options.precision, ranks.device)
        ranks.must_agree({"precision": str(self._dtype)})
        build = Builder(ranks, options, self._dtype)
        self._policy, self._peft, summed = build.policy(setup.model, setup.lora, setup.seed)
        self._critic: Valuer | None = None
        self._frozen = {column: build.frozen(folder) for column, folder in frozen_folders(setup).items()}
        self._optimizers = {"policy": self._optimizer(self._policy, "policy", summed)}
        if setup.critic is not None:
            self._critic, summed = build.critic(setup.critic)
            self._optimizers["critic"] = self._optimizer(self._critic, "critic", summed)
        self._micro_tokens = options.micro_tokens
        self._trainer = Trainer(ranks, self._policy, self._critic, self._optimizers, setup.seed)
        self._pending: PendingSave | None = None
        self._publishing: Iterator[Published] = iter(())
        self._stream = 0
        wait_for_all(ranks, options.start_timeout_s)

    # --- work ---------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def compute(self, batch: Batch, columns: frozenset[str]) -> dict[str, FloatArray] | Refused:
        """Token columns [n] of this rank's segments (see `contracts.TrainStrategy.compute`)."""
        out: dict[str, FloatArray] = {}
        own = columns & OWN
        passes = self._pass()
        if own:
            out.update(self._score(passes, self._policy, batch, own))
        for name in sorted(columns - own):
            if name == VALUES:
                out[name] = self._values(passes, batch)
                continue
            scorer, context = self._scorer(name)
            with context:
                out[name] = self._score(passes, scorer, batch, frozenset({"full_logprobs"}))["full_logprobs"]
        return passes.agreed(lambda: out)

    def update(self, works: Sequence[Work]) -> Report | Refused:
        """One optimiser step per mini-batch."""
        passes = self._pass()
        report = self._trainer.update(works, passes)
        return passes.refusal() if report is None else report

    # --- weights ------------------------------------------------------------------------------------------------------

    def manifest(self) -> Sequence[TensorInfo]:
        """Name, dtype and shape of every published tensor."""
        return ModelWeights(self._policy.model, self._dtype).manifest()

    def open_weights(self) -> int:
        """Begin to publish the weights as they are now; returns the number of the stream."""
        is_sender = self._ranks.rank == 0
        self._publishing = pieces(self._policy.model, self._dtype, is_sender=is_sender)
        self._stream += 1
        return self._stream

    def next_weights(self, stream: int) -> Published | Refused | None:
        """The next piece from rank 0, empty ones from the others; None at the end."""
        if stream != self._stream:
            return Refused(BackendError("the weights were asked for again before they were read to the end"))
        with torch.no_grad():
            return next(self._publishing, None)

    # --- state --------------------------------------------------------------------------------------------------------

    def begin_save(self, folder: Path) -> Refused | None:
        """Copy what is to be saved, and begin to write it while training may go on."""
        if self._pending is not None:
            return Refused(CheckpointError("the last checkpoint that was begun has not been finished"))
        self._pending = PendingSave(folder, self._optimizers, self._facts(), self._trainer.seed, self._ranks)
        return None

    def has_saved(self) -> bool:
        """Whether this rank's part of what was begun is on disk."""
        return self._pending is None or self._pending.is_written

    def finish_save(self) -> Refused | None:
        """Wait until it is."""
        pending, self._pending = self._pending, None
        return self._pass().agreed(lambda: None if pending is None else pending.wait())

    def load(self, folder: Path) -> Refused | None:
        """Go on from a checkpoint, whatever number of ranks wrote it."""
        passes = self._pass()
        record = passes.agreed(lambda: read_record(folder, self._facts()))
        if isinstance(record, Refused):
            return record

        def read() -> None:
            self._trainer.seed = load_sharded(folder, record, self._optimizers, self._ranks)

        return passes.agreed(read)

    def export(self, folder: Path) -> Refused | None:
        """Write a Hugging Face model folder from rank 0."""
        model, source, is_writer = self._policy.model, self._setup.model, self._ranks.rank == 0
        with torch.no_grad():
            return self._pass().agreed(lambda: export_sharded(folder, model, source, is_writer=is_writer))

    def close(self) -> None:
        """Leave the process group."""
        self._ranks.leave()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _pass(self) -> Pass:
        return Pass(self._ranks, self._micro_tokens)

    def _optimizer(self, model: Scorer | Valuer, role: str, summed: frozenset[str]) -> ShardedOptimizer:
        setup = self._setup
        settings = setup.optim if role == "policy" else setup.critic_optim or setup.optim
        return ShardedOptimizer(Shards(model.trained(), self._ranks, summed), settings, setup.total_steps)

    def _facts(self) -> dict[str, Any]:
        return {
            "precision": str(self._dtype).removeprefix("torch."),
            "lora": self._setup.lora is not None,
            "roles": sorted(self._optimizers),
        }

    def _scorer(self, column: str) -> tuple[Scorer, AbstractContextManager[Any]]:
        if column == REFERENCE and self._peft is not None and column not in self._frozen:
            return self._policy, self._peft.disable_adapter()
        return self._frozen[column], nullcontext()

    def _score(self, passes: Pass, scorer: Scorer, batch: Batch, names: frozenset[str]) -> Mapping[str, FloatArray]:
        out = {name: empty_column(batch) for name in names}
        for micro in passes.over(scorer.backbone, batch, sampled="old_logprobs" in names):
            scores = scorer.scores(micro.layout, micro.targets, entropy="entropy" in names)
            found: dict[str, Tensor | None] = {
                "old_logprobs": scores.logprobs,
                "full_logprobs": scores.full_logprobs,
                "entropy": scores.entropy,
            }
            for name, column in out.items():
                values = found[name]
                if values is not None and not micro.is_idle:
                    spread(batch, micro.layout, values, column)
        scorer.reshard()  # type: ignore[operator]  # FSDP gave it this method
        return out

    def _values(self, passes: Pass, batch: Batch) -> FloatArray:
        if self._critic is None:
            raise BackendError("values were asked for, but no critic was set up")
        out = empty_column(batch)
        for micro in passes.over(self._critic.backbone, batch, sampled=False):
            values = self._critic(micro.layout)
            if not micro.is_idle:
                spread(batch, micro.layout, values, out)
        self._critic.reshard()  # type: ignore[operator]  # FSDP gave it this method
        return out


def make_rank(setup: TrainSetup, options: Mapping[str, Any]) -> Rank:
    """Join the process group and build the models; the factory that executors call.

    Args:
        setup: model, optimiser, and which further models are needed.
        options: fields of `FsdpOptions`.
    """
    checked = FsdpOptions(**options)
    return Rank(setup, checked, join(checked))
