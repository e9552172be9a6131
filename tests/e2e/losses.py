"""A rollfile: the built-in strategy in a process that is lost, at the updates that a file names.

Each line of the file is an update, counted over all attempts of the run; it is done, and then everything is lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from digits import digits

from roll_core import Component, hookimpl
from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.cluster import WorkerLost
from roll_core.contracts import MiniBatch, TrainSetup
from roll_core.types import Batch

__all__ = ["LossyStrategy", "digits"]


class LossyStrategy(LocalTrainStrategy):
    """Loses its process when it is told to."""

    def __init__(self, *, setup: TrainSetup, losses: str, how: str = "rank") -> None:
        super().__init__(setup=setup, precision="float32")
        self._losses = Path(losses)
        self._how = how

    def update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        metrics = super().update(batch, mini_batches)
        counter = self._losses.with_suffix(".count")
        count = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(count))
        if count not in map(int, self._losses.read_text().split()):
            return metrics
        if self._how == "driver":
            os.kill(os.getpid(), signal.SIGKILL)
        raise WorkerLost(f"actor[1] was killed in update {count}", role="actor", index=1)


@hookimpl
def roll_register_train_strategies() -> list[Component]:
    return [Component("lossy", f"{__name__}:LossyStrategy", summary="loses its process")]
