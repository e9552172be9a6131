"""One worker as a child process of the driver."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pickle
import queue
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from pathlib import Path

from roll_core.cluster import wire
from roll_core.cluster.errors import WorkerLost
from roll_core.cluster.link import STACK_S, Boot, Greeting, Message, arrange_stacks
from roll_core.cluster.processes import dump_stacks, ended_how, is_running, kill_tree, rss_bytes, tail
from roll_core.cluster.reference import Buffer, Clock, Parts, Transfers, size_of

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[4]); "
    "from roll_core.cluster.serve import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)
_GREETING = -1
_COROUTINES_S = 1.5
_LAST_BREATH_S = 1.0
"""How long a process that has closed its connection may take to end."""


class LocalLink:
    """A child process in a session of its own, started fresh (never forked from the driver's memory).

    Args:
        boot: what it is told first.
        env: its environment.
        transfers: where bytes are counted.
    """

    def __init__(self, boot: Boot, env: Mapping[str, str], transfers: Transfers) -> None:
        self.boot = boot
        self.environment: Mapping[str, str] = {}
        self.ready: Future[Greeting] = Future()
        self.ready.set_running_or_notify_cancel()  # a wait that is given up does not cancel it
        self._transfers = transfers
        self._lock = threading.Lock()
        self._ending = threading.Lock()
        self._asides = itertools.count(_GREETING - 1, -1)
        self._waiting: dict[int, tuple[Future[Parts], str]] = {}
        self._lost: WorkerLost | None = None
        self._was_killed = False
        self._outbox: queue.SimpleQueue[tuple[list[Buffer], str] | None] = queue.SimpleQueue()
        self._sock, theirs = wire.make_pair()
        reading, self._lifeline = os.pipe()
        try:
            self._process = _start_process(boot, env, theirs, reading)
        except BaseException:
            self._sock.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(reading)
        self._outbox.put(([pickle.dumps(boot)], ""))
        name = f"roll-{boot.role}-{boot.index}"
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()
        threading.Thread(target=self._write, name=name, daemon=True).start()

    def send(self, message: Message) -> Future[Parts]:
        """See `Link.send`."""
        packed = message.packed
        groups = [packed.parts, *(reference.handle for reference in packed.references)]
        parts: list[Buffer] = [part for group in groups for part in group]
        if not message.is_waited:
            parts = [part if isinstance(part, bytes) else bytes(part) for part in parts]
        header = (message.number, message.order, message.method, [len(group) for group in groups])
        return self._ask(header, parts, message.stage)

    def cancel(self, number: int) -> None:
        """See `Link.cancel`."""
        if self._lost is None:
            self._outbox.put(([pickle.dumps((number, "cancel", "", []))], ""))

    def stacks(self) -> str:
        """See `Link.stacks`."""
        is_ready = self.ready.done() and self.ready.exception() is None
        dump = dump_stacks(self._process.pid, Path(self.boot.trace), STACK_S) if self.is_alive() else ""
        texts = [arrange_stacks(dump, self.ready.result() if is_ready else None)]
        if is_ready:
            with contextlib.suppress(TimeoutError, WorkerLost):
                answer = self._ask((next(self._asides), "coroutines", "", []), [], "")
                texts.append(bytes(answer.result(_COROUTINES_S)[0]).decode())
        return "\n".join(text for text in texts if text)

    def is_alive(self) -> bool:
        """See `Link.is_alive`."""
        return self._lost is None and is_running(self._process.pid)

    def rss(self) -> int | None:
        """See `Link.rss`."""
        return rss_bytes(self._process.pid) if self.is_alive() else None

    def kill(self) -> None:
        """See `Link.kill`."""
        self._was_killed = True
        self._end_process()
        if threading.current_thread() is not self._reader:
            self._reader.join()  # it tells whoever waits, and tidies up

    # --- threads ---

    def _ask(self, header: tuple[int, str, str, list[int]], parts: list[Buffer], stage: str) -> Future[Parts]:
        answer: Future[Parts] = Future()
        with self._lock:
            if self._lost is None:
                self._waiting[header[0]] = (answer, stage)
                self._outbox.put(([pickle.dumps(header), *parts], stage))
                return answer
        answer.set_exception(copy.copy(self._lost))
        return answer

    def _write(self) -> None:
        while (item := self._outbox.get()) is not None:
            parts, stage = item
            clock = Clock()
            try:
                wire.send(self._sock, parts)
            except EOFError:
                return  # the reading thread sees it too, and says why
            if stage:
                self._transfers.sent(stage, size_of(parts), clock())

    def _read(self) -> None:
        """Hand out replies until the process ends, even if children it forked keep its socket open."""
        ended = os.pidfd_open(self._process.pid)
        poll = select.poll()
        for descriptor in (self._sock.fileno(), ended):
            poll.register(descriptor, select.POLLIN)
        try:
            while any(descriptor == self._sock.fileno() for descriptor, _ in poll.poll()):
                clock = Clock()
                number, *parts = wire.receive(self._sock)
                self._reply(int.from_bytes(number, "big", signed=True), parts, clock)
        except EOFError:
            pass  # it closed the connection, which it does by ending
        finally:
            os.close(ended)
            self._lose()

    def _reply(self, number: int, parts: Parts, clock: Clock) -> None:
        if number == _GREETING:
            greeting: Greeting = pickle.loads(parts[0])  # noqa: S301 - sent by the child we started
            self.ready.set_result(greeting)
            return
        with self._lock:
            answer, stage = self._waiting.pop(number)
        if stage:
            self._transfers.received(stage, 0, clock())  # bytes are counted where the reply is unpacked
        answer.set_result(parts)

    def _lose(self) -> None:
        self._end_process()
        name = f"{self.boot.role}[{self.boot.index}]"
        node = socket.gethostname()
        code = self._process.returncode
        how = "was ended by the driver" if self._was_killed else ended_how(code)
        words = "" if self._was_killed else tail(Path(self.boot.log))
        lost = WorkerLost(
            f"{name} (pid {self._process.pid} on {node}) {how}"
            + (f"; the end of {self.boot.log}:\n{words}" if words else ""),
            self.boot.role,
            self.boot.index,
            node,
            code,
        )
        with self._lock:
            self._lost = lost
            waiting, self._waiting = self._waiting, {}
        self._outbox.put(None)
        with contextlib.suppress(InvalidStateError):
            self.ready.set_exception(lost)
        for answer, _ in waiting.values():
            answer.set_exception(copy.copy(lost))  # each waiter adds notes of its own
        self._sock.close()
        os.close(self._lifeline)

    def _end_process(self) -> None:
        """Kill the process's whole group and reap it, keeping its own exit status where it has ended by itself."""
        with self._ending:
            if self._process.returncode is None:  # not reaped yet, so its id is still its own
                if not self._was_killed and self._lost is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(_LAST_BREATH_S)
                kill_tree(self._process.pid)
                self._process.wait()


def _start_process(boot: Boot, env: Mapping[str, str], sock: socket.socket, lifeline: int) -> subprocess.Popen[bytes]:
    Path(boot.trace).touch()
    with Path(boot.log).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", _BOOT, str(sock.fileno()), str(lifeline), boot.trace, json.dumps(boot.path)],
            pass_fds=(sock.fileno(), lifeline),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=dict(env),
        )
