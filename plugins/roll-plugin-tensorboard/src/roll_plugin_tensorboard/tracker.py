"""The `tensorboard` tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from roll_core.builtin.trackers.samples import Samples
from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError
from roll_core.types import RolloutGroup

if TYPE_CHECKING:
    from roll_plugin_tensorboard.writer import RunWriter


class TensorBoardTracker:
    """Writes scalars, sample rollouts as text, and config and outcome for the HParams page.

    A run that goes on from a checkpoint writes into the same folder, and TensorBoard drops what came after it.

    Args:
        log_dir: folder of this run's event files; null is `tensorboard` in the run's folder.
        samples: rollouts in a table of samples; 0 logs none.
        samples_every: steps from one table to the next.
        flush_secs: seconds after which what was logged is on disk at the latest.
    """

    def __init__(
        self,
        *,
        log_dir: str | None = None,
        samples: Annotated[int, Field(ge=0)] = 8,
        samples_every: Annotated[int, Field(ge=1)] = 10,
        flush_secs: Annotated[int, Field(ge=1)] = 10,
    ) -> None:
        self._log_dir = log_dir
        self._samples = Samples(samples, samples_every)
        self._flush_secs = flush_secs
        self._writer: RunWriter | None = None

    def start(self, run: RunInfo) -> None:
        """Open the event file, and write the config into it.

        Raises:
            ComponentError: tensorboard is not installed.
        """
        try:
            from roll_plugin_tensorboard.writer import RunWriter
        except ImportError as error:
            raise ComponentError(
                f"tracker 'tensorboard' needs the package tensorboard ({error}): pip install tensorboard"
            ) from error
        folder = Path(self._log_dir).expanduser() if self._log_dir else run.folder / "tensorboard"
        self._writer = RunWriter(folder, flush_secs=self._flush_secs, resumed_from=run.resumed_from)
        self._writer.config(run.resumed_from or 0, run.run_id, {**run.config, "versions": dict(run.plugins)})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one point of each metric."""
        if self._writer is not None and metrics:
            self._writer.scalars(step, metrics)

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Write a table of samples every n-th step."""
        rows = self._samples.rows(step, groups) if self._writer is not None else []
        if self._writer is not None and rows:
            self._writer.samples(step, rows)

    def finish(self, status: str) -> None:
        """Write how the run ended and close the file; further calls do nothing."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(status)
