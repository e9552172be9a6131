"""Sharded checkpoints: every rank writes its own part, and any number of ranks can read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from roll_core.builtin.local_train.persistence import check_record
from roll_core.errors import CheckpointError
from roll_plugin_fsdp.optimizer import ShardedOptimizer
from roll_plugin_fsdp.processes import Ranks

_FORMAT = 1
_RECORD = "fsdp.json"

Trained = Mapping[str, ShardedOptimizer]
"""What is trained, by role ("policy", "critic")."""


class PendingSave:
    """A checkpoint whose tensors are copied already and are being written.

    Args:
        folder: exists and is empty; on a file system that all ranks see.
        trained: what to save.
        facts: what must be the same when it is loaded.
        seed: of the dropout.
        ranks: who saves.
    """

    def __init__(self, folder: Path, trained: Trained, facts: Mapping[str, Any], seed: int, ranks: Ranks) -> None:
        self._folder = folder
        steps = {role: optimizer.steps for role, optimizer in trained.items()}
        record = {"format": _FORMAT, "facts": dict(facts), "seed": seed, "steps": steps}
        self._record = json.dumps(record, indent=2) if ranks.rank == 0 else None
        state = {role: optimizer.state() for role, optimizer in trained.items()}
        writer = FileSystemWriter(folder, overwrite=True)
        self._future: Future[Any] = _future(async_save(state, storage_writer=writer, process_group=ranks.saving))

    @property
    def is_written(self) -> bool:
        """Whether `wait` would return at once."""
        return self._future.done()

    def wait(self) -> None:
        """Return when everything is written.

        Raises:
            CheckpointError: it could not be; the same on every rank.
        """
        try:
            self._future.result()
            if self._record is not None:
                (self._folder / _RECORD).write_text(self._record, encoding="utf-8")
        except (CheckpointException, OSError, RuntimeError) as error:
            raise CheckpointError(f"cannot write the training state to '{self._folder}': {_first(error)}") from error


def read_record(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says about itself; nothing is changed here.

    Raises:
        CheckpointError: it is missing, or of a run with other settings.
    """
    try:
        record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the training state in '{folder}': {error}") from error
    check_record(folder, record, _FORMAT, facts)
    return record


def load_sharded(folder: Path, record: Mapping[str, Any], trained: Trained, ranks: Ranks) -> int:
    """Read a checkpoint into what is trained here, whatever number of ranks wrote it; returns its seed.

    Every rank must call it. What was trained here is lost, also when it fails.

    Raises:
        CheckpointError: it is damaged, or of another model.
    """
    state = {role: optimizer.state() for role, optimizer in trained.items()}
    try:
        load(state, checkpoint_id=folder, process_group=ranks.saving)
    except (CheckpointException, OSError, RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the state in '{folder}' cannot be read into this model, which is in between now; load another "
            f"checkpoint: {_first(error)}"
        ) from error
    for role, optimizer in trained.items():
        optimizer.go_on_from(*record["steps"][role])
    return int(record["seed"])


def _future(answer: Any) -> Future[Any]:
    """What `async_save` returns is a future of the upload, or holds one, by the way tensors were copied."""
    found: Future[Any] = getattr(answer, "upload_completion", answer)
    return found


def _first(error: BaseException) -> str:
    """The cause on one rank: torch's text holds the tracebacks of all."""
    failures = getattr(error, "failures", None)
    if not failures:
        return f"{type(error).__name__}: {error}"
    rank, (cause, _) = next(iter(sorted(failures.items())))
    return f"rank {rank}: {type(cause).__name__}: {cause}"
