"""Whether the process that wrote a run's status is still there."""

from __future__ import annotations

import socket
import time
from enum import StrEnum
from pathlib import Path

from roll_core.cluster.processes import is_running
from roll_core.watch.status import RunStatus

FRESH_S = 30.0
"""A heartbeat is written every two seconds; an older one than this says that nobody writes any more."""


class Liveness(StrEnum):
    """What has become of a run."""

    ALIVE = "alive"
    SILENT = "silent"
    """Its process is there and writes nothing: stopped, or stuck in native code that keeps the interpreter."""
    DEAD = "dead"
    """Its process has ended without a word."""
    UNREACHABLE = "unreachable"
    """It ran on another machine and has not been heard of."""
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    HUNG = "hung"
    """Its watch ended it."""

    @property
    def can_resume(self) -> bool:
        """Whether `roll resume` is what to type."""
        return self in (Liveness.DEAD, Liveness.INTERRUPTED, Liveness.FAILED, Liveness.HUNG, Liveness.UNREACHABLE)


def birth_of(pid: int) -> str:
    """When a process of this machine was started, in the system's own count; empty where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    return f"{boot}/{stat.rpartition(')')[2].split()[19]}"


def assess(status: RunStatus, *, now: float | None = None, host: str | None = None) -> Liveness:
    """What has become of the run that wrote a status.

    Args:
        status: as it was read.
        now: Unix time; the clock's by default.
        host: name of the machine that asks; this one's by default.
    """
    if status.state != "running":
        return Liveness(status.state)
    is_fresh = status.age_s(time.time() if now is None else now) <= FRESH_S
    if status.host != (socket.gethostname() if host is None else host):
        return Liveness.ALIVE if is_fresh else Liveness.UNREACHABLE
    if not is_running(status.pid) or birth_of(status.pid) != status.born:
        return Liveness.DEAD
    return Liveness.ALIVE if is_fresh else Liveness.SILENT
