"""Watches one run's limits from outside: CPU time decides, the wall clock is a backstop, memory is the sum of all."""

from __future__ import annotations

from roll_core.sandbox.wire import RunRequest, Stop
from roll_core.sandbox.zygote.state import Prepared
from roll_core.sandbox.zygote.usage import cpu_seconds

MAX_STRETCH = 10
"""A run that waits for a processor gets that time on top of its wall clock, up to this many times the limit."""


class Watched:
    """The limits of one run and what it has used so far."""

    def __init__(self, prepared: Prepared, request: RunRequest, pid: int, pidfd: int, began: float) -> None:
        self.began = began
        self.cpu_s = 0.0
        self.memory_kb = 0
        self._proc = prepared.proc
        self._has_family = prepared.config.allow_processes
        self._request = request
        self._memory_limit = prepared.resident + (request.memory_mb << 20)
        self._pid = pid
        self._pidfd = pidfd
        self._host_pid: int | None = None
        self._deadline = began + request.wall_s

    def exceeded(self, now: float) -> Stop | None:
        """Which limit the run is over, if any.

        Args:
            now: `time.monotonic()`.
        """
        if self._host_pid is None:
            self._host_pid = self._proc.host_pid(self._pidfd)
        family = [self._host_pid] if self._host_pid is not None else []
        if family and self._has_family:
            family = self._proc.family(family[0])
        self._measure(family)
        if self.cpu_s > self._request.cpu_s:
            return "cpu"
        if self.memory_kb << 10 > self._memory_limit:
            return "memory"
        return "wall" if now > self._deadline and self._is_late(now, family) else None

    def _measure(self, family: list[int]) -> None:
        used = cpu_seconds(self._pid)
        resident = sum(self._proc.resident_bytes(pid) for pid in family)
        if len(family) > 1:
            used = max(used, self._proc.family_cpu_seconds(family))
            if resident > self._memory_limit:  # the sum counts shared pages once for each: ask for the costly figure
                resident = sum(self._proc.proportional_bytes(pid) for pid in family)
        self.cpu_s = max(self.cpu_s, used)
        self.memory_kb = max(self.memory_kb, resident >> 10)

    def peaked(self, memory_kb: int) -> bool:
        """Whether a peak of memory, known at the end, was over the limit."""
        return memory_kb << 10 > self._memory_limit

    def _is_late(self, now: float, family: list[int]) -> bool:
        waited = max((self._proc.waiting_seconds(pid) for pid in family), default=0.0)
        wall_s = self._request.wall_s
        self._deadline = self.began + wall_s + min(waited, wall_s * (MAX_STRETCH - 1))
        return now > self._deadline
