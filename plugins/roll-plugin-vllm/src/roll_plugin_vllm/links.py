"""How the driver reaches a replica: in a worker process through an executor, or on a thread of its own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from roll_core.cluster.group import WorkerGroup
from roll_core.errors import BackendError
from roll_plugin_vllm.replica import Replica, start_replica

_CLOSE_S = 20.0


class Link(Protocol):
    """One replica. Calls fail with the replica's own `BackendError`s; any other error means that it is lost."""

    name: str

    def call(self, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        """Call a method of `Replica` and do not wait. Any thread."""
        ...

    def restart(self) -> None:
        """Put a fresh replica in its place; blocks until it is ready."""
        ...

    def close(self) -> None:
        """End the replica."""
        ...


class GroupLink:
    """A replica in a worker process.

    Args:
        group: the role's workers.
        index: which of them.
        name: for messages and routing.
    """

    def __init__(self, group: WorkerGroup, index: int, name: str) -> None:
        self.name = name
        self._group = group
        self._index = index

    def call(self, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        """See `Link.call`."""
        return self._group.submit(self._index, method, *args, timeout_s=timeout_s, what=what)

    def restart(self) -> None:
        """See `Link.restart`."""
        self._group.restart(self._index)

    def close(self) -> None:
        """End the process where it is a group of its own; of several, end the engine inside and leave the process."""
        if self._group.size == 1:
            self._group.close()
        else:
            self.call("close", timeout_s=_CLOSE_S, what=f"end of {self.name}").result()


class ThreadLink:
    """A replica of this process, on a thread with an event loop of its own; it lives through the caller's loops.

    Args:
        name: for messages and routing.
        arguments: of `start_replica`.
        start_s: bound on starting it.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], start_s: float) -> None:
        self.name = name
        self._arguments = dict(arguments)
        self._start_s = start_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"roll-{name}", daemon=True)
        self._thread.start()
        self._replica: Replica | None = None

    def start(self) -> None:
        """Start the replica; blocks until it is ready.

        Raises:
            BackendError: it does not start, or not in time.
        """
        future = asyncio.run_coroutine_threadsafe(start_replica(**self._arguments), self._loop)
        try:
            self._replica = future.result(self._start_s)
        except TimeoutError:
            raise BackendError(f"{self.name} was not ready within {self._start_s:g} s") from None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        self._loop.close()

    def call(self, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        """See `Link.call`."""
        return asyncio.run_coroutine_threadsafe(self._bounded(method, args, timeout_s, what), self._loop)

    async def _bounded(self, method: str, args: tuple[Any, ...], timeout_s: float, what: str) -> Any:
        if self._replica is None:
            raise BackendError(f"{self.name} is not running")
        try:
            return await asyncio.wait_for(getattr(self._replica, method)(*args), timeout_s)
        except TimeoutError:
            raise TimeoutError(f"{self.name} did not answer within {timeout_s:g} s: {what}") from None

    def restart(self) -> None:
        """See `Link.restart`."""
        self._end_replica()
        self.start()

    def close(self) -> None:
        """See `Link.close`."""
        if self._thread.is_alive():
            self._end_replica()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_S)

    def _end_replica(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            asyncio.run_coroutine_threadsafe(replica.close(), self._loop).result(_CLOSE_S)
