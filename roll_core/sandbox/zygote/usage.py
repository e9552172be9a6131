"""What a run uses, read from outside it: CPU time, memory, time spent waiting for a processor."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""utime, stime, cutime, cstime among the fields of /proc/<pid>/stat that follow the name."""
_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel's per-process clocks."""
_MAX_THREADS_ASKED = 64


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process of this pid namespace; 0 when it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _CPU_CLOCK)
    except OSError:
        return 0.0


class Proc:
    """The host's /proc, kept open by descriptor: the zygote's own root may have none."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def fd(self) -> int:
        """The descriptor of the folder."""
        return self._fd

    def host_pid(self, pidfd: int) -> int | None:
        """The number by which this /proc knows the process behind `pidfd`; None when it is gone."""
        for line in (self._read(f"self/fdinfo/{pidfd}") or "").splitlines():
            if line.startswith("Pid:"):
                pid = int(line.split()[1])
                return pid if pid > 0 else None
        return None

    def resident_bytes(self, pid: int | str) -> int:
        """Resident memory of a process; 0 when it is gone."""
        fields = (self._read(f"{pid}/statm") or "").split()
        return int(fields[1]) * _PAGE if len(fields) > 1 else 0

    def proportional_bytes(self, pid: int) -> int:
        """Resident memory of a process, pages that it shares counted in parts; whole ones where that is not told."""
        for line in (self._read(f"{pid}/smaps_rollup") or "").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
        return self.resident_bytes(pid)

    def family(self, pid: int) -> list[int]:
        """A process and all its descendants; what they leave behind is adopted by the first of a pid namespace."""
        found, waiting = [], [pid]
        while waiting:
            found.append(waiting.pop())
            for thread in self._list(f"{found[-1]}/task"):
                children = self._read(f"{found[-1]}/task/{thread}/children") or ""
                waiting += [int(child) for child in children.split()]
        return found

    def family_cpu_seconds(self, family: Sequence[int]) -> float:
        """CPU time of processes and of the children that they have waited for."""
        ticks = 0
        for pid in family:
            fields = (self._read(f"{pid}/stat") or "").rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[_TIMES])
        return ticks / _TICKS

    def tells_children(self) -> bool:
        """Whether this kernel tells which children a process has."""
        return self._read("thread-self/children") is not None

    def address_space_bytes(self) -> int:
        """Size of this process's own address space."""
        return int((self._read("self/statm") or "0").split()[0]) * _PAGE

    def waiting_seconds(self, pid: int) -> float:
        """Longest time that one thread of a process was ready to run and got no processor."""
        longest = 0.0
        for thread in self._list(f"{pid}/task")[:_MAX_THREADS_ASKED]:
            fields = (self._read(f"{pid}/task/{thread}/schedstat") or "").split()
            if len(fields) > 1:
                longest = max(longest, int(fields[1]) / 1e9)
        return longest

    def threads_of(self, uid: int) -> int:
        """How many threads the processes of a user have."""
        count = 0
        for name in self._list("."):
            if name.isdigit():
                try:
                    owner = os.stat(name, dir_fd=self._fd).st_uid
                except FileNotFoundError:  # it ended meanwhile
                    continue
                if owner == uid:
                    count += len(self._list(f"{name}/task"))
        return count

    def _read(self, path: str) -> str | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                return os.read(fd, 1 << 16).decode(errors="replace")  # programs choose their own names
            finally:
                os.close(fd)
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or hidden from us by the host
            return None

    def _list(self, path: str) -> list[str]:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                return os.listdir(fd)
            finally:
                os.close(fd)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return []
