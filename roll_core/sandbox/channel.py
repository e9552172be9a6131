"""The host's end of one zygote: starts it, sends runs, hands reports to whoever waits for them."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from roll_core.sandbox.memfds import MemoryFile
from roll_core.sandbox.types import SandboxError
from roll_core.sandbox.wire import (
    MAX_PACKET,
    KillRequest,
    RunReport,
    RunRequest,
    Started,
    ZygoteConfig,
    decode,
    encode,
)

_START_S, _END_S, _SEND_S = 120.0, 10.0, 30.0
"""How long a zygote may take to start, to end, to take a request when the kernel has too many descriptors in flight."""
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, {root!r}); from roll_core.sandbox.zygote.main import main; "
    "sys.path.remove({root!r}); main({fd})"
)
_ENVIRONMENT = {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
_LAST_WORDS = 2000


class ZygoteDiedError(SandboxError):
    """A zygote went away while a run was under way, or before it."""


class Channel:
    """One zygote. Safe from many threads."""

    def __init__(self, python: str, config: ZygoteConfig) -> None:
        """Start it and wait until it is ready.

        Raises:
            SandboxError: it cannot start; the message says why.
        """
        self.is_dead = False
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[RunReport]] = {}
        self._last_words = MemoryFile("zygote-stderr")
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = self._launch(python, theirs)
        except OSError as error:
            self._socket.close()
            raise SandboxError(f"cannot start {python!r}: {error}") from error
        finally:
            theirs.close()
        self._handshake(config)
        threading.Thread(target=self._read_reports, name="sandbox-zygote", daemon=True).start()

    def _launch(self, python: str, theirs: socket.socket) -> subprocess.Popen[bytes]:
        code = _BOOTSTRAP.format(root=_PACKAGE_ROOT, fd=theirs.fileno())
        return subprocess.Popen(  # noqa: S603 - our own code in the interpreter that the caller chose
            [python, "-I", "-S", "-B", "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._last_words.fd,
            env=_ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )

    def _handshake(self, config: ZygoteConfig) -> None:
        self._socket.settimeout(_START_S)
        try:
            self._socket.send(encode(config))
            packet = self._socket.recv(MAX_PACKET)
        except OSError as error:
            packet, reason = b"", f"{type(error).__name__}: {error}"
        else:
            reason = Started(**decode(packet)).error or "" if packet else "it died"
        if not packet or reason:
            words = self._said()
            self._process.kill()
            self._process.wait()
            self._socket.close()
            raise SandboxError(f"{reason}{words}")
        self._socket.settimeout(None)

    def _said(self) -> str:
        text = self._last_words.read(_LAST_WORDS).decode(errors="replace").strip()
        return f"\n{text}" if text else ""

    def submit(self, request: RunRequest, fds: Sequence[int]) -> Future[RunReport]:
        """Send a run; its report, or a `ZygoteDiedError`, comes in the future."""
        future: Future[RunReport] = Future()
        with self._lock:
            if self.is_dead:
                raise ZygoteDiedError("the zygote has died")
            self._waiting[request.run] = future
            try:
                self._send_with_fds(encode(request), fds)
            except OSError as error:
                self._waiting.pop(request.run, None)
                raise ZygoteDiedError(f"the zygote does not take requests: {error}") from error
        return future

    def _send_with_fds(self, packet: bytes, fds: Sequence[int]) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        give_up = time.monotonic() + _SEND_S
        while True:
            try:
                self._socket.sendmsg([packet], ancillary)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or time.monotonic() > give_up:
                    raise
                time.sleep(0.001)  # the kernel limits how many descriptors a user has in flight
            else:
                return

    def kill_run(self, run: int) -> None:
        """Kill a run, if it is still alive; its report comes as for any other."""
        with self._lock:
            if run in self._waiting and not self.is_dead:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # dead: the reader tells the waiters
                    self._socket.send(encode(KillRequest(run)))

    def _read_reports(self) -> None:
        while True:
            try:
                packet = self._socket.recv(MAX_PACKET)
            except OSError:  # closed under us by `close`
                packet = b""
            if not packet:
                break
            report = RunReport(**decode(packet))
            with self._lock:
                future = self._waiting.pop(report.run, None)
            if future is not None:
                future.set_result(report)
        with self._lock:
            self.is_dead = True
            orphans, self._waiting = list(self._waiting.values()), {}
        for future in orphans:
            future.set_exception(ZygoteDiedError(f"the zygote died during the run{self._said()}"))

    def close(self) -> None:
        """End the zygote and all its runs; returns when they are gone."""
        with contextlib.suppress(OSError):  # it may have gone first
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def destroy(self) -> None:
        """Kill a zygote that does not answer; its waiters hear that it died."""
        self._process.kill()

    def abandon(self) -> None:
        """In a forked copy of the host: forget the zygote, which belongs to the original."""
        self.is_dead = True
        os.close(self._socket.detach())
        self._process.returncode = 0  # not our child: nothing to wait for
