"""One JSON object per logged step in `<run>/metrics.jsonl`."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from roll_core.contracts import RunInfo
from roll_core.types import RolloutGroup

logger = logging.getLogger(__name__)


class JsonlTracker:
    """Appends metrics as they come; NaN and infinity become null, since JSON has no word for them.

    A new run begins an empty file. One that goes on from a checkpoint first drops the lines of later steps, so that a
    step stands there once, and a line that was cut off when the process died.

    Args:
        file: name of the file inside the run's folder.
    """

    def __init__(self, *, file: str = "metrics.jsonl") -> None:
        self._name = file
        self._path: Path | None = None

    def start(self, run: RunInfo) -> None:
        """Open the file of this run."""
        path = run.folder / self._name
        path.parent.mkdir(parents=True, exist_ok=True)
        kept: list[str] = []
        if run.resumed_from is not None and path.is_file():
            kept = _lines_up_to(run.resumed_from, path)
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text("".join(kept), encoding="utf-8")
        partial.replace(path)
        self._path = path

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        if self._path is None:
            return
        row = {"step": step} | {k: float(v) if math.isfinite(v) else None for k, v in metrics.items()}
        _append(self._path, (json.dumps(row) + "\n").encode())

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Rollouts are the parquet tracker's."""

    def finish(self, status: str) -> None:
        """Close; further calls do nothing."""
        self._path = None


def _append(path: Path, line: bytes) -> None:
    """Add the whole line, or nothing: half of one, on a full disk, would spoil the next too."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            file.truncate(end)
            raise


def _lines_up_to(step: int, path: Path) -> list[str]:
    kept = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            logger.warning("%s, line %d is no JSON (cut off when the run died?) and is dropped", path, number)
            continue
        if row["step"] <= step:
            kept.append(line + "\n")
    return kept
