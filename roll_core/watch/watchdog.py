"""The watch over one run: names stages, bounds them, keeps the live state written, and acts when something hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from roll_core.cluster.errors import Stuck
from roll_core.cluster.waits import WAITS, Wait
from roll_core.watch.live import HEARTBEAT_S, Live, Probes
from roll_core.watch.probe import within
from roll_core.watch.pulse import Pulse
from roll_core.watch.report import write_report
from roll_core.watch.stacks import thread_stacks
from roll_core.watch.stages import PAUSE_S, Stage, Stages
from roll_core.watch.status import Facts, State

logger = logging.getLogger(__name__)

EXIT_HUNG = os.EX_TEMPFAIL
"""Exit status (75) of a process that its watch has ended; its run may be resumed."""


class Watch:
    """Watches a run from a thread of its own. Made once per run and process:

    ```
    with watch.running():
        with watch.stage("rollout", step=12): ...
        with watch.stage("update", step=12, is_blocking=True): ...
    ```

    Args:
        folder: the run's folder; it must exist when `running` begins.
        limit_s: bound of a stage in seconds, and of the time between two stages.
        grace_s: how long a stage that was asked to end may still take, and after a hang everything that follows.
        lag_s: a loop that has not moved for so long, in a stage that should let it move, is written to the log.
        answer_s: how long a hang report waits for each part of the run, for the disk and for the terminal.
        pace_s: shortest time between two looks, and between two writes of the state.
        may_exit: whether the process may be ended when a stage cannot be. False only reports.
        end_process: ends the process with an exit status, at once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit_s: float,
        grace_s: float = 120.0,
        lag_s: float = 60.0,
        answer_s: float = 10.0,
        pace_s: float = 0.5,
        may_exit: bool = True,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._folder = folder
        self._lag_limit_s = lag_s
        self._answer_s = answer_s
        self._pace_s = pace_s
        self._may_exit = may_exit
        self._end_process = end_process
        self._stages = Stages(limit_s, grace_s)
        self._pulse = Pulse()
        self._lag_s = 0.0
        self._lagging: Stage | None = None
        self._live = Live(folder)
        self._changed, self._ended = threading.Event(), threading.Event()

    # --- what the engine calls ---

    def attach(self, probes: Probes) -> None:
        """Ask these parts of the run from now on (one that is taken up again has new ones)."""
        self._live.attach(probes)

    def update(self, **facts: Unpack[Facts]) -> None:
        """Tell what has changed. Never blocks."""
        self._live.facts = {**self._live.facts, **facts}
        self._changed.set()

    def renew(self) -> None:
        """A hang has been overcome and the run is taken up again: bounds are what they were at first."""
        self._stages.renew()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch while the block runs; what is in it and in no stage is bounded too. Writes how it has ended.

        `update(outcome=...)` says how a block ended that raises nothing; "finished" otherwise.
        """
        self._live.facts.pop("outcome", None)
        self.renew()
        self._ended.clear()
        thread = threading.Thread(target=self._run, name="roll-watch", daemon=True)
        thread.start()
        state: State = "failed"
        error = ""
        try:
            yield
            state = self._live.facts.get("outcome", "finished")
        except (KeyboardInterrupt, asyncio.CancelledError):
            state = "interrupted"
            raise
        except BaseException as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            self._ended.set()
            self._changed.set()
            thread.join(self._answer_s)
            self._live.write(state, self._stages.current, 0.0, error)

    @contextmanager
    def stage(self, name: str, step: int, *, limit_s: float | None = None, is_blocking: bool = False) -> Iterator[None]:
        """Name and bound what happens in the block.

        Args:
            name: "rollout", "update" ...
            step: the step it belongs to.
            limit_s: its bound in seconds; the watch's own by default.
            is_blocking: it runs on the event loop's thread and need not let the loop move.

        Raises:
            Stuck: it was over its bound and was cancelled, or the worker it waited for was given up; says who waits
                for whom, and where the full report is. A block that cannot be ended so, or takes longer than the
                grace period, ends with its process (exit status 75).
        """
        stage = self._stages.enter(name, step, limit_s, is_blocking=is_blocking)
        self._changed.set()
        try:
            with WAITS.during(Wait("engine", name, f"step {step}", stage.limit_s, stage.began)):
                yield
        except (Exception, asyncio.CancelledError) as end:
            if stage.end():
                raise Stuck(stage.report, what=stage.label) from end
            raise
        else:
            if stage.asked is not None:
                logger.warning("%s has ended after all, in %.0f s", stage.label, time.monotonic() - stage.since)
        finally:
            stage.end()
            self._stages.leave(stage)
            self._changed.set()

    # --- on the watch's thread ---

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._look()
                self._live.write("running", self._stages.current, self._lag_s)
            except Exception:
                logger.exception("the watch has failed at looking at the run, which goes on")
            self._sleep(self._ended, self._pace_s)
            self._sleep(self._changed, min(HEARTBEAT_S, self._stages.next_s()))
            self._changed.clear()

    def _sleep(self, until: threading.Event, seconds: float) -> None:
        """Wait; the time for which the whole process was stopped (Ctrl-Z, a suspended machine) counts for nobody."""
        before = time.monotonic()
        until.wait(seconds)
        stopped = time.monotonic() - before - seconds
        if stopped > PAUSE_S:
            logger.warning("this process did not run for %.0f s", stopped)
            self._stages.forgive(stopped)

    def _look(self) -> None:
        current = self._stages.current
        self._lag_s = self._pulse.lag_s(current.loop)
        overdue = self._stages.overdue()
        if overdue is not None:
            self._report(overdue)
            self._ask_to_end(overdue)
            return
        immovable = self._stages.immovable()
        if immovable is not None:
            self._give_up(immovable)
        elif self._lag_s >= self._lag_limit_s and not current.is_blocking and self._lagging is not current:
            self._lagging = current
            text = "%s: the event loop has not moved for %.0f s\n%s"
            self._log(logging.WARNING, text, current.label, self._lag_s, thread_stacks(self._own_threads()))

    def _report(self, stage: Stage) -> None:
        """Say who waits for whom; it is on disk before anything is tried."""
        scene = self._live.scene(stage, self._lag_s, self._answer_s)
        stage.report = scene.summary()
        text = scene.full(self._own_threads())

        def write() -> None:
            self._live.hang = write_report(self._folder, stage, text)

        failure = within(self._answer_s, write, "roll-watch-report")
        where = f"full report: {self._folder / self._live.hang}" if failure is None and self._live.hang else ""
        stage.report += f"\n{where or f'the full report could not be written: {failure}'}"
        self._log(logging.ERROR, "%s%s", text, where)

    def _ask_to_end(self, stage: Stage) -> None:
        """Cancel it; where the loop's thread itself waits for a worker, let that wait fail."""
        stage.cancel()
        if stage.is_blocking:
            error = Stuck(stage.report, what=stage.label)
            within(self._answer_s, lambda: self._live.break_off(error), "roll-watch-break-off")

    def _give_up(self, stage: Stage) -> None:
        """A stage that cannot be ended: end the process, so that whoever supervises it can take the run up again."""
        what = "has not ended although it was asked to"
        if not self._may_exit:
            self._log(logging.ERROR, "%s %s; end this process and resume the run", stage.label, what)
            return
        why = f"{stage.label} {what}; the process ends itself with status {EXIT_HUNG}"
        self._log(logging.CRITICAL, "%s, so that the run can be resumed", why)
        self._live.write("hung", stage, self._lag_s, stage.report)
        within(self._answer_s, _flush, "roll-watch-flush")
        self._end_process(EXIT_HUNG)

    def _log(self, level: int, text: str, *arguments: object) -> None:
        """Write to the log, unless whoever should write it hangs itself."""
        within(self._answer_s, lambda: logger.log(level, text, *arguments), "roll-watch-log")

    def _own_threads(self) -> list[int]:
        return [t.ident for t in threading.enumerate() if t.name.startswith("roll-watch") and t.ident is not None]


def _flush() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()
    sys.stdout.flush()
    sys.stderr.flush()
