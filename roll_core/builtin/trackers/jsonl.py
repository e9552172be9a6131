"""One JSON object per logged step in `<run>/metrics.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from roll_core.contracts import RunInfo
from roll_core.types import RolloutGroup


class JsonlTracker:
    """Appends metrics as they come; NaN and infinity become null, since JSON has no word for them.

    A run that goes on from a checkpoint first drops the lines of steps after it, so that a step stands there once.

    Args:
        file: name of the file inside the run's folder.
    """

    def __init__(self, *, file: str = "metrics.jsonl") -> None:
        self._name = file
        self._path: Path | None = None

    def start(self, run: RunInfo) -> None:
        """Open the file of this run."""
        self._path = run.folder / self._name
        run.folder.mkdir(parents=True, exist_ok=True)
        if run.resumed_from is not None and self._path.is_file():
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if json.loads(line)["step"] <= run.resumed_from]
            self._path.write_text("".join(kept), encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        if self._path is None:
            return
        row = {"step": step} | {k: float(v) if math.isfinite(v) else None for k, v in metrics.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Rollouts are the parquet tracker's."""

    def finish(self, status: str) -> None:
        """Close; further calls do nothing."""
        self._path = None
