"""The limits of a tree of processes, kept by the host: the kernel's hold for single processes, or not for root."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Literal

from roll_core.sandbox.types import Limits, SandboxError
from roll_core.sandbox.zygote.usage import Proc

_STEP_S = 0.02
_PATIENCE_S = 60.0

Exceeded = Literal["cpu", "wall", "memory", "processes", "output"]


class Tree:
    """The processes of one run: the tool, the first process of its pid namespace, and all under it.

    The end of that first process is the end of all of them, as the kernel sees to it.
    """

    def __init__(self, tool: subprocess.Popen[bytes], proc_fd: int) -> None:
        self.cpu_s = 0.0
        """CPU seconds used so far."""
        self.memory_bytes = 0
        """Largest sum of resident memory seen."""
        self.status = 0
        """Exit status of the tool, negative for a signal, once it has ended."""
        self._tool = tool
        self._proc = Proc(proc_fd)
        self._tool_fd = os.pidfd_open(tool.pid)
        self._first_fd: int | None = None
        self._began = time.monotonic()

    @property
    def wall_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def watch(self, limits: Limits, overflowed: Callable[[], bool]) -> Exceeded | None:
        """Wait for the end; kill the tree when it is over a limit, and say which.

        Args:
            limits: what the tree may use.
            overflowed: whether it has written too much.
        """
        exceeded: Exceeded | None = None
        while exceeded is None and not _wait(self._tool_fd, _STEP_S):
            exceeded = "output" if overflowed() else self._exceeded(limits)
        self.end()
        return "cpu" if exceeded is None and self.cpu_s > limits.cpu_s else exceeded

    def end(self) -> None:
        """Kill what is left and wait until nothing is."""
        if self._first_fd is not None:
            _kill(self._first_fd)
        _kill(self._tool_fd)
        _, status, usage = os.wait4(self._tool.pid, 0)
        self.status = self._tool.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = max(self.cpu_s, usage.ru_utime + usage.ru_stime)
        os.close(self._tool_fd)
        if self._first_fd is not None:
            has_ended = _wait(self._first_fd, _PATIENCE_S)
            os.close(self._first_fd)
            if not has_ended:
                raise SandboxError(f"a killed jail did not end within {_PATIENCE_S:.0f} s")

    def _exceeded(self, limits: Limits) -> Exceeded | None:
        most = limits.processes + OWN_PROCESSES
        family, threads = _family(self._tool.pid, most)
        self._hold_first(family)
        self.cpu_s = max(self.cpu_s, self._proc.family_cpu_seconds(family))
        memory = sum(self._proc.resident_bytes(pid) for pid in family)
        if memory > limits.memory_mb << 20:  # shared pages count once for each process: ask more exactly
            memory = sum(self._proc.proportional_bytes(pid) for pid in family)
        self.memory_bytes = max(self.memory_bytes, memory)
        if self.cpu_s > limits.cpu_s:
            return "cpu"
        if memory > limits.memory_mb << 20:
            return "memory"
        if threads > most:
            return "processes"
        return "wall" if self.wall_s > limits.wall else None

    def _hold_first(self, family: list[int]) -> None:
        """Keep a descriptor of the first process of the namespace, so that its number cannot come to mean another."""
        if self._first_fd is None and len(family) > 1:
            try:
                self._first_fd = os.pidfd_open(family[1])
            except ProcessLookupError:  # it has just ended, and with it all others
                return


OWN_PROCESSES = 3
"""The tool, the first process of the namespace, the shell that starts the program."""


def _family(pid: int, most: int) -> tuple[list[int], int]:
    """A process and its descendants, nearest first, and how many threads they have; the search ends beyond `most`."""
    found, threads = [pid], 0
    for parent in found:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            threads += len(tasks)
            for task in tasks:
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        if threads > most:
            break
    return found, threads


def _wait(pidfd: int, seconds: float) -> bool:
    """Whether a process ends within that time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:  # it has ended
        return
