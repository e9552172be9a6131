"""The driver's side of one worker: a child process that can be killed, or a thread that can only be abandoned."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from functools import partial
from typing import IO, Any, Literal, Protocol

from roll_core.scoring.channel import Channel
from roll_core.scoring.serve import Bench, VerifierSpec, VerifyRequest

Order = Literal["build", "verify"]

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from roll_core.scoring.serve import main; main(int(sys.argv[1]))"
)
_LOG_LIMIT = 1 << 20


class WorkerLostError(Exception):
    """The worker died or could not be started; the message says how."""


class WorkerKilledError(WorkerLostError):
    """Something outside killed the worker: somebody, or the system that was out of memory."""


class Worker(Protocol):
    """Executes one order at a time. After `TimeoutError` or `WorkerLostError` it is of no more use."""

    def request(self, order: Order, argument: str | VerifyRequest, timeout_s: float) -> dict[str, Any]:
        """Run one order and return its reply.

        Raises:
            TimeoutError: no reply within `timeout_s` seconds.
            WorkerLostError: the worker died.
        """
        ...

    def kill(self) -> None:
        """End the worker at once; safe from any thread, any number of times."""
        ...


class ProcessWorker:
    """A child process in a session of its own, started fresh (never forked from the driver's memory).

    What it and its verifiers print goes to a temporary file; the end of it explains a crash. Its hash seed is fixed and
    numerical libraries get one thread, unless the environment says otherwise, so that verdicts do not depend on
    which worker gave them.

    Args:
        specs: pickled specs by key.
        memory_gib: limit of the data segment of the process; None sets none.
        start_timeout_s: how long the interpreter may take to start.

    Raises:
        WorkerLostError: the process did not come up.
    """

    def __init__(self, specs: Mapping[str, bytes], memory_gib: float | None, start_timeout_s: float) -> None:
        with contextlib.ExitStack() as undo:
            ours, theirs = map(undo.enter_context, socket.socketpair())
            self._log: IO[bytes] = undo.enter_context(tempfile.TemporaryFile())
            self._process = _start_process(theirs, self._log)
            undo.pop_all()
        theirs.close()
        self._channel = Channel(ours)
        self._end = weakref.finalize(self, _end_process, self._process)
        try:
            self._channel.send(pickle.dumps((dict(specs), memory_gib)), start_timeout_s)
            self._channel.receive(start_timeout_s)
        except (TimeoutError, EOFError) as error:
            reason = "did not start in time" if isinstance(error, TimeoutError) else self._last_words()
            self.close()
            raise WorkerLostError(reason) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def request(self, order: Order, argument: str | VerifyRequest, timeout_s: float) -> dict[str, Any]:
        """See `Worker.request`."""
        deadline = time.monotonic() + timeout_s
        try:
            self._channel.send(pickle.dumps((order, argument, timeout_s)), timeout_s)
            reply: dict[str, Any] = json.loads(self._channel.receive(max(deadline - time.monotonic(), 0.001)))
        except EOFError as error:
            words = self._last_words()
            lost = WorkerKilledError if self._process.returncode == -signal.SIGKILL else WorkerLostError
            raise lost(words) from error
        self._trim_log()
        return reply

    def kill(self) -> None:
        """SIGKILL the worker's whole process group and reap it."""
        self._end()

    def close(self) -> None:
        """Kill the worker and free what the driver holds for it."""
        self.kill()
        self._channel.close()
        self._log.close()

    def _last_words(self) -> str:
        """How the process ended, and the end of what it printed."""
        self.kill()  # a process that is exiting keeps its own exit status
        code = self._process.wait()
        how = f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 300, max(size - 300, 0)).decode("utf-8", "replace").strip()
        return f"the worker {how}" + (f"; it printed: ...{tail}" if tail else "")

    def _trim_log(self) -> None:
        if os.fstat(self._log.fileno()).st_size > _LOG_LIMIT:
            os.ftruncate(self._log.fileno(), 0)
            self._log.seek(0)  # the child shares the file offset


def _start_process(sock: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-c", _BOOT, str(sock.fileno()), json.dumps(sys.path)],
        pass_fds=(sock.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **os.environ},
    )


def _end_process(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not reaped yet, so its id is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class ThreadWorker:
    """A thread of the driver. A deadline answers the caller in time, but the overrun thread itself runs on.

    Args:
        specs: how the verifiers are built.
    """

    def __init__(self, specs: Mapping[str, VerifierSpec]) -> None:
        self._orders: queue.SimpleQueue[tuple[Order, Any] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        bench = Bench({key: spec.build for key, spec in specs.items()})
        target = partial(_run_orders, bench, self._orders, self._replies)
        threading.Thread(target=target, name="roll-verifier", daemon=True).start()

    def request(self, order: Order, argument: str | VerifyRequest, timeout_s: float) -> dict[str, Any]:
        """See `Worker.request`."""
        self._orders.put((order, argument))
        try:
            reply = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no reply within {timeout_s} s") from None
        if reply is None:
            raise WorkerLostError("the worker thread was given up")
        return reply

    def kill(self) -> None:
        """Give up the thread: whoever waits for it is told, and it ends after the order it is at."""
        self._orders.put(None)
        self._replies.put(None)

    def close(self) -> None:
        """Same as `kill`."""
        self.kill()


def _run_orders(
    bench: Bench, orders: queue.SimpleQueue[tuple[Order, Any] | None], replies: queue.SimpleQueue[dict[str, Any] | None]
) -> None:
    while (item := orders.get()) is not None:
        order, argument = item
        replies.put(bench.build(argument) if order == "build" else bench.verify(argument))
