"""The stages that are open now, their bounds, and how one of them is ended from outside."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

BETWEEN = "between stages"
"""Name of the time in which no stage is open."""
PAUSE_S = 30.0
"""A watch that slept so much longer than it meant to was stopped together with its process; nobody was late then."""


@dataclass(slots=True, eq=False)
class Stage:
    """One stage while it lasts.

    Args:
        name: "rollout", "update" ...
        step: the step it belongs to.
        limit_s: its bound in seconds.
        is_blocking: it runs on the event loop's thread and need not let the loop move.
        since: monotonic time it counts from.
        task: the asyncio task that is in it; None outside of a loop.
        loop: the task's loop.
    """

    name: str
    step: int
    limit_s: float
    is_blocking: bool
    since: float
    task: asyncio.Task[object] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    began: float = field(default_factory=time.time)
    """Unix time, for people."""
    asked: float | None = None
    """Monotonic time at which it was found too long and asked to end."""
    report: str = ""
    """The hang report, once it is written."""
    is_given_up: bool = False
    """It did not end in the grace period, and this has been said."""
    _is_open: bool = True
    _is_cancelled: bool = False
    _cancelling: int = 0

    def __post_init__(self) -> None:
        self._cancelling = self.task.cancelling() if self.task is not None else 0

    @property
    def label(self) -> str:
        """For messages: "stage 'update' of step 12"."""
        return (
            f"stage '{self.name}' of step {self.step}" if self.name != BETWEEN else f"the time after step {self.step}"
        )

    def cancel(self) -> None:
        """Cancel its task as soon as the loop moves. Any thread; does nothing where there is no task."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._cancel)

    def end(self) -> bool:
        """The stage is over; once more does nothing.

        Returns:
            Whether it was cancelled from here, and by nobody else (counted as `asyncio.timeout` does).
        """
        if not self._is_open:
            return False
        self._is_open = False
        if not self._is_cancelled or self.task is None:
            return False
        return self.task.uncancel() <= self._cancelling

    def _cancel(self) -> None:
        """On the loop's thread, so that the stage cannot end meanwhile."""
        if self._is_open and self.task is not None and not self.task.done():
            self._is_cancelled = True
            self.task.cancel(f"{self.label} is over its bound of {self.limit_s:g} s")


class Stages:
    """The open stages, outermost first. Safe from any thread.

    Args:
        limit_s: bound of a stage that has none of its own, and of the time between two stages.
        grace_s: how long a stage that was asked to end may go on; after a hang the bound of all that follows.
        clock: monotonic seconds.
    """

    def __init__(self, limit_s: float, grace_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._clock = clock
        self._lock = threading.Lock()
        self._has_hung = False
        self._open: list[Stage] = [Stage(BETWEEN, 0, limit_s, is_blocking=True, since=clock())]

    def renew(self) -> None:
        """Forget that anything hung; the time between stages counts anew."""
        with self._lock:
            self._has_hung = False
            step = self._open[0].step
            self._open[0] = Stage(BETWEEN, step, self._limit_s, is_blocking=True, since=self._clock())

    def enter(self, name: str, step: int, limit_s: float | None, *, is_blocking: bool) -> Stage:
        """Open a stage for the task that is running, if any."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            task, loop = None, None
        else:
            task = asyncio.current_task(loop)
        with self._lock:
            limit = self._limit_s if limit_s is None else limit_s
            limit = min(limit, self._grace_s) if self._has_hung else limit
            stage = Stage(name, step, limit, is_blocking, self._clock(), task, loop)
            self._open.append(stage)
        return stage

    def leave(self, stage: Stage) -> None:
        """Close a stage; the time between stages counts anew."""
        with self._lock:
            self._open.remove(stage)
            between = self._open[0]
            limit = self._grace_s if self._has_hung else self._limit_s
            self._open[0] = Stage(BETWEEN, max(between.step, stage.step), limit, is_blocking=True, since=self._clock())

    @property
    def current(self) -> Stage:
        """The innermost stage."""
        with self._lock:
            return self._open[-1]

    def overdue(self) -> Stage | None:
        """The outermost stage that is over its bound and has not been asked to end; it counts as asked from now on."""
        now = self._clock()
        with self._lock:
            for stage in self._watched():
                if stage.asked is None and now - stage.since >= stage.limit_s:
                    stage.asked = now
                    self._has_hung = True
                    return stage
        return None

    def immovable(self) -> Stage | None:
        """A stage that was asked to end and goes on beyond the grace period; it is given up, and named once."""
        now = self._clock()
        with self._lock:
            for stage in self._watched():
                if stage.asked is not None and not stage.is_given_up and now - stage.asked >= self._grace_s:
                    stage.is_given_up = True
                    return stage
        return None

    def next_s(self) -> float:
        """Seconds to the next bound; infinite when everything that is open has been given up."""
        now = self._clock()
        with self._lock:
            ends = [
                s.since + s.limit_s if s.asked is None else s.asked + self._grace_s
                for s in self._watched()
                if not s.is_given_up
            ]
        return max(0.0, min(ends, default=math.inf) - now)

    def forgive(self, seconds: float) -> None:
        """The whole process was stopped for so long: bounds move by it."""
        with self._lock:
            for stage in self._open:
                stage.since += seconds
                stage.asked = None if stage.asked is None else stage.asked + seconds

    def _watched(self) -> list[Stage]:
        """Those whose time counts: the one between stages only while no other is open."""
        return self._open[1:] or self._open
