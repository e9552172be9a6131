"""The saves of a run: one at a time, beside the training, and what becomes of the run when one fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from roll_core.checkpoint.saving import Saves, Saving
from roll_core.checkpoint.store import Checkpoint, CheckpointStore
from roll_core.errors import CheckpointError, RollError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Saver:
    """What the engine saves through. Used by one caller at a time, while nobody else calls the strategy.

    Args:
        store: the run's checkpoints.
        strategy: trains, and writes its part.
        on_error: "stop" raises when a checkpoint cannot be written; "continue" logs and counts it, and leaves it to
            the next one. The last of a run is raised always, since no next one could make it good.
    """

    def __init__(self, store: CheckpointStore, strategy: Saves, on_error: Literal["stop", "continue"] = "stop") -> None:
        self._store, self._strategy, self._on_error = store, strategy, on_error
        self._saving: Saving | None = None
        self._failed = 0
        self._in_a_row = 0
        self._metrics: dict[str, float] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written, or was and nobody has asked what became of it."""
        return self._saving is not None

    def is_saved(self, step: int) -> bool:
        """Whether the newest whole checkpoint is that of `step`; finish what is under way before asking."""
        latest = self._store.latest()
        return latest is not None and latest.step == step

    def begin(
        self,
        step: int,
        state: Mapping[str, Any],
        write_pending: Callable[[Path], None] | None = None,
        *,
        is_last: bool = False,
    ) -> None:
        """Begin the checkpoint of `step`; see `CheckpointStore.begin`.

        Raises:
            CheckpointError: it could not be begun, and that is to end the run.
        """

        def begun() -> None:
            self._saving = self._store.begin(step, state, self._strategy, write_pending)

        self._counted(begun, is_last=is_last)

    def poll(self) -> Checkpoint | None:
        """Move on what is under way, without waiting for it; returns a checkpoint that has become whole.

        Raises:
            CheckpointError: it could not be written, and that is to end the run.
        """
        saving = self._saving
        if saving is None or saving.is_waiting:
            return None

        def moved_on(saving: Saving = saving) -> Checkpoint | None:
            saving.advance()
            return self._end(saving) if saving.is_over else None

        return self._counted(moved_on)

    def finish(self, *, is_last: bool = False) -> Checkpoint | None:
        """Wait for what is under way; returns the checkpoint, None when nothing was or it failed.

        Raises:
            CheckpointError: it could not be written, and that is to end the run.
        """
        saving = self._saving
        if saving is None:
            return None
        return self._counted(lambda: self._end(saving), is_last=is_last)

    def close(self) -> None:
        """Wait for what is under way when a run ends by an error of its own; what fails is logged, never raised."""
        try:
            self.finish()
        except RollError as error:
            logger.warning("the checkpoint that was being written is lost: %s", error)
        except Exception:
            logger.exception("the checkpoint that was being written is lost")

    def abandon(self) -> None:
        """Stop what is under way at once; no part of it counts as a checkpoint."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.abandon()

    def take_metrics(self) -> dict[str, float]:
        """What saving took since it was asked last; empty when nothing was saved.

        `time/checkpoint_s`: the run stood still for it; `time/checkpoint_write_s`: from the beginning until it was
        whole; `checkpoint/failed`: saves that failed so far, in a run that has any.
        """
        taken, self._metrics = self._metrics, {}
        return taken | ({"checkpoint/failed": float(self._failed)} if self._failed else {})

    def _end(self, saving: Saving) -> Checkpoint:
        checkpoint = self._store.finish(saving)
        self._saving = None
        self._in_a_row = 0
        self._metrics["time/checkpoint_write_s"] = saving.seconds
        logger.info("checkpoint %s: %.1f MB in %.1f s", checkpoint.folder, saving.size / 1e6, saving.seconds)
        return checkpoint

    def _counted(self, work: Callable[[], T], *, is_last: bool = False) -> T | None:
        """Count the seconds; after an error nothing is under way, and it is raised or logged, as the run wants it."""
        started = time.perf_counter()
        try:
            return work()
        except CheckpointError as error:
            self._saving = None
            self._failed += 1
            self._in_a_row += 1
            if is_last or self._on_error == "stop":
                raise
            logger.error(  # noqa: TRY400 - the message says it all; a traceback at every save would bury it
                "%s; the run goes on without it (checkpoint.on_error), %d failed in a row", error, self._in_a_row
            )
            return None
        except Exception:
            self._saving = None
            raise
        finally:
            seconds = time.perf_counter() - started
            self._metrics["time/checkpoint_s"] = self._metrics.get("time/checkpoint_s", 0.0) + seconds
