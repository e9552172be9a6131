"""The child's side of `LocalExecutor`: reads orders from an inherited socket and hands them to the servant."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

from roll_core.cluster import wire
from roll_core.cluster.link import Boot, Greeting
from roll_core.cluster.processes import enable_dumps, kill_tree
from roll_core.cluster.proof import prove
from roll_core.cluster.reference import Parts
from roll_core.cluster.servant import Job, Servant


def main(descriptor: int, lifeline: int, trace: str) -> None:
    """Entry point of a worker process."""
    end_with_driver(lifeline)
    with Path(trace).open("a", encoding="utf-8") as file:
        enable_dumps(file)
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        try:
            Reception(sock).run()
        except EOFError:
            kill_tree(os.getpid())


def end_with_driver(lifeline: int) -> None:
    """Have the kernel kill this process and its children when the driver ends, even while native code runs here.

    The lifeline is the reading end of a pipe that only the driver can write to, and nobody does: the one event on it is
    the driver's end. Signals for it go to this process's group.
    """
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def free_port() -> int:
    """A TCP port nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


class Reception:
    """Takes messages; the main thread of a worker process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._servant = Servant()

    def run(self) -> None:
        """Serve until the driver closes the connection.

        Raises:
            EOFError: it did.
        """
        boot: Boot = pickle.loads(wire.receive(self._sock)[0])  # noqa: S301 - sent by the driver that started us
        self._send(-1, [pickle.dumps(self._greeting(boot))])
        while True:
            header, *parts = wire.receive(self._sock)
            self._take(pickle.loads(header), parts)  # noqa: S301 - as above

    def _greeting(self, boot: Boot) -> Greeting:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return Greeting(
            pid=os.getpid(),
            node=socket.gethostname(),
            address="127.0.0.1",
            port=free_port(),
            worker_thread=self._servant.thread_id,
            own_threads=(threading.get_ident(),),
            proof=prove(boot.plugins),
            devices=tuple(devices.split(",")) if devices else (),
        )

    def _take(self, header: tuple[int, str, str, list[int]], parts: Parts) -> None:
        number, order, method, counts = header
        if order == "cancel":
            self._servant.cancel(number)
        elif order == "coroutines":
            threading.Thread(target=self._tell_coroutines, args=(number,), daemon=True).start()
        else:
            groups: list[Parts] = []
            for count in counts:
                groups.append(parts[:count])
                parts = parts[count:]
            job = Job(number, order, method, groups[0], groups[1:])  # type: ignore[arg-type]  # one of the orders
            self._servant.submit(job).add_done_callback(lambda future: self._reply(number, future))

    def _tell_coroutines(self, number: int) -> None:
        self._send(number, [self._servant.coroutines().encode()])

    def _reply(self, number: int, future: Future[Parts]) -> None:
        self._send(number, future.result())

    def _send(self, number: int, parts: Parts) -> None:
        with self._sending:
            try:
                wire.send(self._sock, [number.to_bytes(8, "big", signed=True), *parts])
            except EOFError:  # the driver is gone, and nothing here is of use to anybody
                sys.stdout.flush()
                kill_tree(os.getpid())
