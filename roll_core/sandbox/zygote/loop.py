"""The zygote's life: forks a child for each request, watches limits, reports ends."""

from __future__ import annotations

import array
import errno
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import NoReturn

from roll_core.sandbox.kernel import libc
from roll_core.sandbox.wire import MAX_FDS, MAX_PACKET, RunReport, RunRequest, Stop, decode, encode
from roll_core.sandbox.zygote.child import READY, Birth, run_child
from roll_core.sandbox.zygote.state import Prepared
from roll_core.sandbox.zygote.watch import Watched

_CHECK_S = 0.05
"""Between two looks at what the runs have used."""
_IDLE_MS, _BUSY_MS = 60_000, int(_CHECK_S * 1000)
_STATUS_SIZE = 2048


@dataclass(slots=True)
class _Job:
    """A run that is under way."""

    request: RunRequest
    pid: int
    pidfd: int
    status: int
    """The reading end of the pipe that says how the lock-down went."""
    uid: int | None
    watched: Watched
    stopped: Stop | None = None
    failure: str | None = None
    """Why it could not be watched, and so was killed."""


class Loop:
    """Serves one host until the host is gone."""

    def __init__(self, control: socket.socket, prepared: Prepared) -> None:
        self._control = control
        self._prepared = prepared
        self._jobs: dict[int, _Job] = {}
        self._free_uids = list(prepared.run_uids or ())
        self._next_check = 0.0
        self._poll = select.poll()
        for fd in (control.fileno(), *prepared.guards):
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> NoReturn:
        """Handle requests; exits, and takes every run along, when the host is gone."""
        while True:
            for fd, _ in self._poll.poll(_BUSY_MS if self._jobs else _IDLE_MS):
                if fd == self._control.fileno():
                    self._receive()
                elif fd in self._jobs:
                    self._finish(self._jobs.pop(fd))
                else:
                    self._leave()
            if self._jobs and time.monotonic() >= self._next_check:
                self._enforce()

    def _leave(self) -> NoReturn:
        for job in self._jobs.values():
            os.kill(job.pid, signal.SIGKILL)
        os._exit(0)

    def _receive(self) -> None:
        fds = array.array("i")
        packet, ancillary, _, _ = self._control.recvmsg(MAX_PACKET, socket.CMSG_SPACE(MAX_FDS * fds.itemsize))
        if not packet:
            self._leave()
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        message = decode(packet)
        try:
            if "kill" in message:
                self._kill_run(message["kill"])
            else:
                self._start(RunRequest(**message), list(fds))
        finally:
            for fd in fds:
                os.close(fd)

    def _kill_run(self, run: int) -> None:
        for job in self._jobs.values():
            if job.request.run == run:
                self._stop(job, "killed")

    def _start(self, request: RunRequest, fds: list[int]) -> None:
        uid = None
        try:
            _check_arrived(request, fds)
            uid = self._take_uid()
            job = self._fork(request, fds, uid)
        except OSError as error:
            self._give_back(uid)
            self._send(RunReport(request.run, f"cannot start a run: {error}", None, 0, 0.0, 0.0, 0))
            return
        if not self._jobs:
            self._next_check = time.monotonic() + _CHECK_S
        self._jobs[job.pidfd] = job
        self._poll.register(job.pidfd, select.POLLIN)

    def _fork(self, request: RunRequest, fds: list[int], uid: int | None) -> _Job:
        prepared = self._prepared
        other_threads = self._other_threads(uid)
        readable, writable = os.pipe()
        birth = Birth(request, fds, writable, os.getpid(), uid, other_threads)
        began = time.monotonic()
        pid = 0
        try:
            try:
                if prepared.own_pid_namespace is not None:
                    libc.unshare(libc.CLONE_NEWPID)
                pid = os.fork()
                if pid == 0:
                    run_child(prepared, birth, self._control)
            finally:
                os.close(writable)
                if prepared.own_pid_namespace is not None:
                    libc.setns(prepared.own_pid_namespace, libc.CLONE_NEWPID)
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.close(readable)
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        return _Job(request, pid, pidfd, readable, uid, Watched(prepared, request, pid, pidfd, began))

    def _take_uid(self) -> int | None:
        if self._prepared.run_uids is None:
            return None
        if not self._free_uids:
            raise OSError(errno.EAGAIN, f"more than {len(self._prepared.run_uids)} runs at the same time")
        return self._free_uids.pop(0)

    def _give_back(self, uid: int | None) -> None:
        if uid is not None:
            self._free_uids.append(uid)

    def _other_threads(self, uid: int | None) -> int:
        """Threads that count against the same user: the kernel counts them together, so honest programs need room."""
        prepared = self._prepared
        if prepared.own_pid_namespace is not None or uid is not None:
            return 0
        return prepared.proc.threads_of(prepared.uid) + sum(job.request.processes for job in self._jobs.values())

    def _enforce(self) -> None:
        now = time.monotonic()
        for job in self._jobs.values():
            if job.stopped is None and job.failure is None:
                self._check(job, now)
        self._next_check = time.monotonic() + _CHECK_S

    def _check(self, job: _Job, now: float) -> None:
        try:
            reason = job.watched.exceeded(now)
        except Exception as error:  # noqa: BLE001 - one run that cannot be watched must not take the others along
            job.failure = f"cannot watch the run: {type(error).__name__}: {error}"
            os.kill(job.pid, signal.SIGKILL)
        else:
            if reason is not None:
                self._stop(job, reason)

    def _stop(self, job: _Job, reason: Stop) -> None:
        if job.stopped is None:
            job.stopped = reason
            os.kill(job.pid, signal.SIGKILL)  # at `ns` the kernel kills all others of its pid namespace before it ends

    def _finish(self, job: _Job) -> None:
        self._poll.unregister(job.pidfd)
        os.close(job.pidfd)
        _, status, usage = os.wait4(job.pid, 0)
        words = os.read(job.status, _STATUS_SIZE)
        os.close(job.status)
        self._give_back(job.uid)
        if job.stopped is None and job.watched.peaked(usage.ru_maxrss):
            job.stopped = "memory"
        failure = job.failure
        if failure is None and words != READY and job.stopped != "killed":
            failure = words.decode(errors="replace") or f"died in the lock-down, wait status {status}"
        self._send(
            RunReport(
                run=job.request.run,
                failure=failure,
                stopped=job.stopped,
                status=status,
                cpu_s=max(usage.ru_utime + usage.ru_stime, job.watched.cpu_s),
                wall_s=time.monotonic() - job.watched.began,
                memory_kb=max(usage.ru_maxrss, job.watched.memory_kb),
            )
        )

    def _send(self, report: RunReport) -> None:
        try:
            self._control.send(encode(report))
        except (BrokenPipeError, ConnectionResetError):  # the host has gone: the poll will say so
            return


def _check_arrived(request: RunRequest, fds: list[int]) -> None:
    """The kernel drops descriptors that the zygote has no room for."""
    expected = MAX_FDS if request.has_peer else MAX_FDS - 1
    if len(fds) != expected:
        raise OSError(errno.EMFILE, f"{len(fds)} of {expected} descriptors arrived")
