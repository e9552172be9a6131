"""The hang report: who waits for whom, since when, and where everything is."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roll_core.cluster.spec import WorkerHealth
from roll_core.cluster.waits import WAITS
from roll_core.watch.stacks import task_stacks, thread_stacks
from roll_core.watch.stages import Stage

HANGS_FOLDER = "hangs"


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known when something hangs."""

    stage: Stage
    workers: Sequence[WorkerHealth]
    queue: Mapping[str, int]
    lag_s: float
    worker_stacks: Mapping[str, str]
    missing: Sequence[str]
    """What could not be learned, and why."""

    def summary(self) -> str:
        """A few lines: the stage, every open wait, every worker."""
        began = time.strftime("%H:%M:%S", time.localtime(self.stage.began))
        lines = [f"{self.stage.label} has not ended within {self.stage.limit_s:g} s (since {began})"]
        lines += [wait.render() for wait in WAITS.open()]
        if self.lag_s >= 1:
            lines.append(f"the event loop has not moved for {self.lag_s:.0f} s")
        if self.queue:
            lines.append("queue: " + ", ".join(f"{count} {name}" for name, count in self.queue.items()))
        lines += [worker.render() for worker in self.workers]
        lines += self.missing
        return "\n".join(lines)

    def full(self, skipped_threads: Sequence[int]) -> str:
        """The summary and all stacks."""
        now = time.strftime("%Y-%m-%d %H:%M:%S %z")
        parts = [f"{now}, pid {os.getpid()} on {socket.gethostname()}", self.summary()]
        for name, stack in self.worker_stacks.items():
            lines = stack.splitlines() or ["(it wrote no stack: it is stopped, or has ended)"]
            parts.append(f"worker {name}:\n" + "\n".join(f"  {line}" for line in lines))
        for take in (lambda: thread_stacks(skipped_threads), lambda: task_stacks(self.stage.loop)):
            parts.append(_safely(take))
        return "\n\n".join(part for part in parts if part) + "\n"


def write_report(folder: Path, stage: Stage, text: str) -> str:
    """Write a report into a run's folder.

    Args:
        folder: the run's folder.
        stage: what hangs.
        text: the report.

    Returns:
        Where it is, relative to the run's folder.

    Raises:
        OSError: it cannot be written.
    """
    hangs = folder / HANGS_FOLDER
    hangs.mkdir(parents=True, exist_ok=True)
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{stage.name.replace(' ', '-')}"
    path, number = hangs / f"{stem}.txt", 1
    while path.exists():
        number += 1
        path = hangs / f"{stem}-{number}.txt"
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(folder))


def _safely(take: Callable[[], str]) -> str:
    """Stacks move while they are read; a report without them is better than none."""
    try:
        return take()
    except Exception as error:  # noqa: BLE001 - said in the report itself
        return f"stacks could not be read: {type(error).__name__}: {error}"
