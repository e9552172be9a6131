"""The live state of a run: collected from its parts without ever hanging on one, and written to `status.json`."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from roll_core.cluster.processes import rss_bytes
from roll_core.cluster.spec import WorkerHealth
from roll_core.cluster.waits import WAITS
from roll_core.watch.liveness import birth_of
from roll_core.watch.probe import Probe
from roll_core.watch.report import Scene
from roll_core.watch.stages import Stage
from roll_core.watch.status import Facts, RunStatus, State

logger = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
"""How often the state is written while nothing changes, and workers are asked for their health."""
_SOON_S = 0.2
"""How long writing the state waits for what the run's parts say."""
_DISK_S = 5.0
"""How long it waits for the disk."""


def _nothing(_: BaseException) -> None:
    """A run without workers has no calls to them."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What the watch asks of the parts of a run. Called in threads of its own; may block or fail."""

    health: Callable[[], Sequence[WorkerHealth]] = tuple
    """Every worker process."""
    stacks: Callable[[], Mapping[str, str]] = dict
    """Stacks of the workers that owe an answer, by name ("actor[1]")."""
    queue: Callable[[], Mapping[str, int]] = dict
    """Counts of groups and requests, see `RunStatus.queue`."""
    break_off: Callable[[BaseException], None] = _nothing
    """Let every unanswered call to a worker fail with this error, so that a thread that waits in one goes on."""


class Live:
    """Collects and writes. Used by one thread at a time.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.facts: Facts = {}
        """What the engine has told."""
        self.hang: str | None = None
        """The newest hang report."""
        self._folder = folder
        self._started = time.time()
        self._born = birth_of(os.getpid())
        self._asked = -HEARTBEAT_S
        self._is_muted = False
        self._next: RunStatus | None = None
        self._writer = Probe(self._replace, None, "roll-watch-write")
        self.attach(Probes())

    def attach(self, probes: Probes) -> None:
        """Ask these parts from now on."""
        self.break_off = probes.break_off
        self._queue: Probe[dict[str, int]] = Probe(lambda: dict(probes.queue()), {}, "roll-watch-queue")
        self._stacks: Probe[dict[str, str]] = Probe(lambda: dict(probes.stacks()), {}, "roll-watch-stacks")
        self._health: Probe[tuple[float | None, list[WorkerHealth]]] = Probe(
            lambda: (time.time(), list(probes.health())), (None, []), "roll-watch-health"
        )

    def scene(self, stage: Stage, lag_s: float, within_s: float) -> Scene:
        """What is known about a stage that hangs; asks every part afresh.

        Args:
            stage: what hangs.
            lag_s: for how long the event loop has not moved.
            within_s: longest wait for each part in seconds.
        """
        missing = []
        for probe, what in ((self._health, "health"), (self._queue, "queue"), (self._stacks, "stacks")):
            if not probe(within_s):
                missing.append(f"no answer about {what}: {probe.error or f'silence for {within_s:g} s'}")
        return Scene(stage, self._health.latest[1], self._queue.latest, lag_s, self._stacks.latest, missing)

    def write(self, state: State, stage: Stage, lag_s: float, error: str = "") -> None:
        """Replace `status.json`. A failure is logged once, and the run goes on.

        Args:
            state: what the run says of itself.
            stage: the innermost stage.
            lag_s: for how long the event loop has not moved.
            error: what it failed with.
        """
        self._next = self._status(state, stage, lag_s, error)
        if self._writer(_DISK_S):
            self._is_muted = False
        elif not self._is_muted:
            self._is_muted = True
            why = self._writer.error or f"no answer from the disk for {_DISK_S:g} s"
            logger.warning("the live state of the run cannot be written, and the run goes on: %s", why)

    def _replace(self) -> None:
        if self._next is not None:
            self._next.write(self._folder)

    def _status(self, state: State, stage: Stage, lag_s: float, error: str) -> RunStatus:
        is_running = state == "running"
        if is_running:
            self._queue(_SOON_S)
            if time.monotonic() - self._asked >= HEARTBEAT_S:
                self._asked = time.monotonic()
                self._health(_SOON_S)
        asked, workers = self._health.latest if is_running else (None, [])
        known = {key: value for key, value in self.facts.items() if key != "outcome"}
        status = RunStatus(
            state=state,
            pid=os.getpid(),
            born=self._born,
            host=socket.gethostname(),
            started=self._started,
            heartbeat=time.time(),
            stage=stage.name,
            stage_step=stage.step,
            stage_since=stage.began,
            stage_limit_s=stage.limit_s,
            loop_lag_s=round(lag_s, 1),
            rss_bytes=rss_bytes(os.getpid()),
            queue=self._queue.latest if is_running else {},
            workers=[asdict(worker) for worker in workers],
            workers_asked=asked,
            waits=[asdict(wait) for wait in WAITS.open()] if is_running else [],
            hang=self.hang,
            error=error,
        )
        for name, value in known.items():
            setattr(status, name, value)
        return status
