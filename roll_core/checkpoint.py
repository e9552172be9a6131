"""Atomic, complete checkpoints of a run.

A checkpoint is a folder `step-00000012` that appears under its name only when every file in it is on disk, with a
list of sizes and checksums. A run killed at any moment leaves either the whole new checkpoint or only the previous
ones; a failed write (full disk, read-only folder) removes what it left and keeps the previous ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.errors import CheckpointError

STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
STRATEGY_FOLDER = "strategy"
PENDING_FOLDER = "pending"
_PREFIX = "step-"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    folder: Path
    step: int

    @property
    def strategy_folder(self) -> Path:
        """Where the train strategy wrote its part."""
        return self.folder / STRATEGY_FOLDER

    @property
    def pending_folder(self) -> Path | None:
        """What had been rolled out and not yet trained; None when nothing was kept."""
        folder = self.folder / PENDING_FOLDER
        return folder if folder.is_dir() else None

    def read_state(self) -> dict[str, Any]:
        """Verify every file against the manifest and return the engine's state.

        Raises:
            CheckpointError: a file is missing, truncated or altered; says which, and which checkpoint to use instead.
        """
        try:
            manifest = json.loads((self.folder / MANIFEST_FILE).read_text(encoding="utf-8"))
            for name, (size, digest) in manifest["files"].items():
                path = self.folder / name
                if path.stat().st_size != size or _digest(path) != digest:
                    raise CheckpointError(
                        f"checkpoint file {path} differs from what was written (truncated or altered); resume from an "
                        "older checkpoint with --checkpoint"
                    )
            state: dict[str, Any] = json.loads((self.folder / STATE_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"cannot read checkpoint {self.folder}: {error}") from error
        return state


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: where they lie.
        keep: how many of the newest stay.
    """

    folder: Path
    keep: int = 2

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        write_strategy: Callable[[Path], None],
        write_pending: Callable[[Path], None] | None = None,
    ) -> Checkpoint:
        """Write the checkpoint of `step`; all of it or nothing.

        Args:
            step: number of committed steps.
            state: the engine's JSON-able state.
            write_strategy: writes the train strategy's files into the empty folder it is given.
            write_pending: the same for rollouts that were not trained yet.

        Raises:
            CheckpointError: writing failed; earlier checkpoints are untouched.
        """
        final = self.folder / f"{_PREFIX}{step:08d}"
        partial = self.folder / f".partial-{final.name}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            (partial / STRATEGY_FOLDER).mkdir(parents=True)
            write_strategy(partial / STRATEGY_FOLDER)
            if write_pending is not None:
                (partial / PENDING_FOLDER).mkdir()
                write_pending(partial / PENDING_FOLDER)
            (partial / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
            files = {
                str(path.relative_to(partial)): (path.stat().st_size, _digest(path))
                for path in sorted(partial.rglob("*"))
                if path.is_file()
            }
            (partial / MANIFEST_FILE).write_text(json.dumps({"step": step, "files": files}), encoding="utf-8")
            _sync_to_disk(partial)
            replaced = self.folder / f".replaced-{final.name}"
            if final.exists():
                final.rename(replaced)
            partial.rename(final)
            _sync_folder(self.folder)
            shutil.rmtree(replaced, ignore_errors=True)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            previous = self.latest()
            kept = f"; {previous.folder} is still good" if previous else ""
            raise CheckpointError(f"cannot write checkpoint {final}: {error}{kept}") from error
        self._forget_old()
        return Checkpoint(final, step)

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        found = [
            Checkpoint(path, int(path.name.removeprefix(_PREFIX)))
            for path in self.folder.glob(f"{_PREFIX}*")
            if (path / MANIFEST_FILE).is_file()
        ]
        return sorted(found, key=lambda c: c.step)

    def latest(self) -> Checkpoint | None:
        """The newest complete checkpoint."""
        found = self.all()
        return found[-1] if found else None

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps: a run that goes on from `step` makes its own."""
        for checkpoint in self.all():
            if checkpoint.step > step:
                shutil.rmtree(checkpoint.folder)

    def _forget_old(self) -> None:
        for old in self.all()[: -self.keep]:
            shutil.rmtree(old.folder, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _sync_to_disk(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
