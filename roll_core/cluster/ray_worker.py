"""What runs inside Ray: the worker's actor, and one agent per machine that looks at workers from outside.

The executor turns these plain classes into actors.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from roll_core.cluster.link import STACK_S, Boot, Greeting
from roll_core.cluster.processes import dump_stacks, enable_dumps, is_running, kill_tree, rss_bytes, tail
from roll_core.cluster.proof import prove
from roll_core.cluster.reference import Buffer, Parts
from roll_core.cluster.servant import Job, Order, Servant
from roll_core.cluster.serve import free_port


class RayWorker:
    """Passes orders on to a servant, whose object lives on a thread of its own; Ray's event loop stays free.

    Args:
        boot: role, index, and the files for output and stacks.
    """

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        sys.path.extend(entry for entry in boot.path if entry not in sys.path)
        log = Path(boot.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        redirect_output(log)
        self._trace = Path(boot.trace).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the process lives
        enable_dumps(self._trace)
        self._servant = Servant()

    async def hello(self) -> tuple[int, str]:
        """Process id, and Ray's identifier of the machine."""
        import ray

        return os.getpid(), str(ray.get_runtime_context().get_node_id())

    async def greet(self, node: str) -> Greeting:
        """Prove plugins and versions."""
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        proof = await asyncio.get_running_loop().run_in_executor(None, prove, self._boot.plugins)
        return Greeting(
            pid=os.getpid(),
            node=node,
            address=_address(),
            port=free_port(),
            worker_thread=self._servant.thread_id,
            own_threads=(threading.get_ident(), threading.main_thread().ident or 0),
            proof=proof,
            devices=tuple(devices.split(",")) if devices else (),
        )

    async def carry_out(
        self, number: int, order: Order, method: str, parts: list[Buffer], *references: list[Buffer]
    ) -> list[bytes]:
        """Carry out one order; orders may arrive in any sequence."""
        reply: Future[list[bytes]] = Future()

        def copy_reply(done: Future[Parts]) -> None:
            """On the worker's thread, before the next order may change what the reply refers to."""
            reply.set_result([bytes(part) for part in done.result()])

        self._servant.submit(Job(number, order, method, parts, references)).add_done_callback(copy_reply)
        return await asyncio.wrap_future(reply)

    async def cancel(self, number: int) -> None:
        """Give up an order."""
        self._servant.cancel(number)

    async def coroutines(self) -> str:
        """Stacks of the coroutine methods in flight."""
        return await asyncio.get_running_loop().run_in_executor(None, self._servant.coroutines)

    async def watch(self) -> None:
        """Never returns, so that the driver hears of the end of an idle process at once."""
        await asyncio.Event().wait()


class NodeAgent:
    """Looks at the workers of one machine, including those that answer nothing any more."""

    def stacks(self, pid: int, trace: str) -> str:
        """See `processes.dump_stacks`."""
        return dump_stacks(pid, Path(trace), STACK_S)

    def tail(self, log: str) -> str:
        """See `processes.tail`."""
        return tail(Path(log))

    def rss(self, pid: int) -> int | None:
        """See `processes.rss_bytes`."""
        return rss_bytes(pid)

    def end(self, pid: int, patience_s: float) -> bool:
        """Wait until a process has ended, and kill it (and its children) when it has not in time."""
        deadline = time.monotonic() + patience_s
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        was_running = is_running(pid)
        kill_tree(pid)
        return was_running

    def remove(self, folder: str) -> None:
        """Remove a folder of logs."""
        shutil.rmtree(folder, ignore_errors=True)


def redirect_output(log: Path) -> None:
    """Send what this process and its children print to a file, also what native code prints while it crashes."""
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)


def _address() -> str:
    """Address of this machine as the others of the cluster see it."""
    import ray

    return str(ray.util.get_node_ip_address())
