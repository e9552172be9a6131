"""From a zygote's report and a run's files to its `RunResult`: every ending is the program's own doing."""

from __future__ import annotations

import os
import signal

from roll_core.sandbox.memfds import MemoryFile, output_size
from roll_core.sandbox.types import Ending, Limits, RunResult
from roll_core.sandbox.wire import RunReport

RESULT_BYTES = 16 << 20
"""How much the harness inside can report."""
_LAST_WORDS = 4096
_NATIVE_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGTRAP)
_STOPPED = {"cpu": Ending.CPU, "wall": Ending.WALL, "memory": Ending.MEMORY, "killed": Ending.KILLED}


class RunFiles:
    """The files of one run, made by the host and shared with nobody but that run."""

    def __init__(self, stdin: bytes, job: bytes, limits: Limits) -> None:
        self._cap = limits.output_kb << 10
        self.stdin = MemoryFile.of_input("stdin", stdin)
        self.stdout = MemoryFile.for_output("stdout", self._cap)
        self.stderr = MemoryFile.for_output("stderr", self._cap)
        self.result = MemoryFile.for_output("result", RESULT_BYTES)
        self.job = MemoryFile.of_input("job", job)

    @property
    def largest(self) -> int:
        """How large an output can become."""
        return output_size(max(self._cap, RESULT_BYTES))

    @property
    def overflowed(self) -> bool:
        """Whether stdout or stderr was given more than its limit."""
        return self.stdout.written() > self._cap or self.stderr.written() > self._cap

    def read(self) -> tuple[bytes, bytes, bytes]:
        """What was written to stdout, stderr and the result file, within their limits."""
        return self.stdout.read(self._cap), self.stderr.read(self._cap), self.result.read(RESULT_BYTES)

    def close(self) -> None:
        """Free all of them."""
        for file in (self.stdin, self.stdout, self.stderr, self.result, self.job):
            file.close()


def result_of(level: str, report: RunReport, files: RunFiles, limits: Limits) -> RunResult:
    """Put together what became of a run that ran."""
    stdout, stderr, result = files.read()
    by_signal = os.WTERMSIG(report.status) if os.WIFSIGNALED(report.status) else None
    exit_code = os.WEXITSTATUS(report.status) if os.WIFEXITED(report.status) else None
    if report.stopped == "killed":
        ending = Ending.KILLED
    elif files.overflowed:
        ending = Ending.OUTPUT
    elif report.stopped is not None:
        ending = _STOPPED[report.stopped]
    elif by_signal is not None:
        ending = _ending_by_signal(report, limits, by_signal)
    else:
        ending = _last_words(stderr) if exit_code else Ending.EXITED
    return RunResult(
        level=level,
        ending=ending,
        exit_code=exit_code,
        signal=by_signal,
        stdout=stdout,
        stderr=stderr,
        result=result,
        cpu_s=report.cpu_s,
        wall_s=report.wall_s,
        memory_mb=report.memory_kb / 1024,
    )


def _ending_by_signal(report: RunReport, limits: Limits, by_signal: int) -> Ending:
    if by_signal in (signal.SIGXCPU, signal.SIGKILL) and report.cpu_s >= limits.cpu_s:
        return Ending.CPU
    return Ending.SIGNALLED


def _last_words(stderr: bytes) -> Ending:
    """What a traceback's last line says of a program that failed: it only tells one failure from another."""
    lines = stderr[-_LAST_WORDS:].rstrip().splitlines()
    last = lines[-1] if lines else b""
    if last.startswith((b"MemoryError", b"OSError: [Errno 12]")):  # ENOMEM
        return Ending.MEMORY
    if last.startswith((b"OSError: [Errno 28]", b"OSError: [Errno 27]")):  # ENOSPC; EFBIG
        return Ending.DISK
    return Ending.EXITED
