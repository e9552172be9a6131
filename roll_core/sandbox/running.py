"""One run, from the host's side: sent to a zygote, waited for, sent to another one when the machinery fails."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from concurrent.futures import Future
from typing import Protocol

from roll_core.sandbox.channel import Channel, ZygoteDiedError
from roll_core.sandbox.outcome import RunFiles, result_of
from roll_core.sandbox.types import Level, Limits, RunResult, SandboxError
from roll_core.sandbox.wire import RunReport, RunRequest

_ATTEMPTS = 3
"""The first in a shared zygote, the others each in one of its own, so that no run suffers from another twice."""
_WALL_STRETCH, _GRACE_S = 10, 60.0
"""When a zygote that does not report is taken for lost: it enforces the limits itself, well before."""
_NUMBERS = itertools.count(1)


class Zygotes(Protocol):
    """Where runs are sent."""

    level: Level

    def shared(self) -> Channel:
        """A zygote that serves other runs too."""

    def private(self) -> Channel:
        """A fresh one, which the caller closes."""


class Running:
    """A run that was started. Dropping it lets it end by its limits.

    Safe from many threads; a run with a peer is not repeated when the machinery fails, as its partner has moved on.
    """

    def __init__(
        self, zygotes: Zygotes, job: bytes, stdin: bytes, limits: Limits, peer: socket.socket | None = None
    ) -> None:
        self._zygotes, self._job, self._stdin, self._limits = zygotes, job, stdin, limits
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._result: RunResult | None = None
        self._error: SandboxError | None = None
        self._is_killed = False
        self._is_private = False
        self._attempts = _ATTEMPTS if peer is None else 1
        self._submit(zygotes.shared(), peer)

    def _submit(self, channel: Channel, peer: socket.socket | None = None) -> None:
        limits = self._limits
        try:
            self._files = files = RunFiles(self._stdin, self._job, limits)
        except OSError as error:
            raise SandboxError(f"cannot make the files of a run: {error}") from error
        request = RunRequest(
            run=next(_NUMBERS),
            cpu_s=limits.cpu_s,
            wall_s=limits.wall,
            memory_mb=limits.memory_mb,
            processes=limits.processes,
            disk_mb=limits.disk_mb,
            file_bytes=max(limits.disk_mb << 20, files.largest),
            has_peer=peer is not None,
        )
        fds = [files.stdin.fd, files.stdout.fd, files.stderr.fd, files.result.fd]
        fds += [] if peer is None else [peer.fileno()]
        self._channel, self._run = channel, request.run
        self._future: Future[RunReport] = Future()
        try:
            self._future = channel.submit(request, [*fds, files.job.fd])
        except ZygoteDiedError as error:  # as one that dies a moment later: `wait` tries another
            self._future.set_exception(error)
        if self._is_killed:  # while it was being repeated
            channel.kill_run(self._run)

    def wait(self) -> RunResult:
        """Wait for the end of the run; every process of it is dead then.

        Raises:
            SandboxError: the jail failed, not the program, and repeating the run did not help.
        """
        if os.getpid() != self._owner:
            raise SandboxError("this run was started by another process, which alone can wait for it")
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._result is None:
                try:
                    self._result = self._settle()
                except SandboxError as error:
                    self._error = error
                    raise
                except BaseException:  # the waiting thread is interrupted: nobody will ask for the result
                    self._error = SandboxError("waiting for the run was interrupted, so it was killed")
                    self.kill()
                    raise
            return self._result

    def _settle(self) -> RunResult:
        failures: list[str] = []
        while True:
            try:
                return self._attempt()
            except SandboxError as error:
                failures.append(str(error))
                if len(failures) >= self._attempts or self._is_killed:
                    raise SandboxError(f"the jail failed: {'; then: '.join(failures)}") from error
            finally:
                self._files.close()
                if self._is_private:
                    self._channel.close()
            self._is_private = True
            self._submit(self._zygotes.private())

    def _attempt(self) -> RunResult:
        patience = self._limits.wall * _WALL_STRETCH + _GRACE_S
        try:
            report = self._future.result(patience)
        except TimeoutError:
            self._channel.destroy()
            raise ZygoteDiedError(f"the zygote did not report within {patience:.0f} s") from None
        if report.failure is not None:
            raise SandboxError(report.failure)
        return result_of(self._zygotes.level, report, self._files, self._limits)

    def kill(self) -> None:
        """Kill it, if it is still alive; `wait` then says KILLED."""
        self._is_killed = True
        self._channel.kill_run(self._run)
