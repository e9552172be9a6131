"""The process's side of a role: takes requests in batches, works on many at once, and hands out what is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from roll_core.cluster.spec import WorkerSpec
from roll_core.plugin.component import load_object

Order = tuple[int, bytes]
"""A request and its number."""
Reply = tuple[int, bytes | None, str]
"""Number; the answer, or None and why there is none."""
_LINGER_S = 0.002
"""How long the first answer waits for others that come right after it."""


class Handler(Protocol):
    """What a host does. Made in the host's process by a factory (or coroutine function); lives in its event loop.

    It must not block the loop for long: a host whose loop stands still counts as lost.
    """

    async def serve(self, request: bytes) -> bytes:
        """Answer one request; many run at once. What it raises goes to whoever asked, as text."""
        ...

    def facts(self) -> Any:
        """What the driver should know of it before it asks anything. Must pickle."""
        ...

    def vitals(self) -> Mapping[str, int]:
        """Counts since its start, for metrics."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


def host_spec(role: str, handler: str, count: int, kwargs: Mapping[str, Any], **options: Any) -> WorkerSpec:
    """The processes of a role.

    Args:
        role: its name.
        handler: "module:attr" of the handler's factory.
        count: how many hosts.
        kwargs: arguments of the factory; must pickle.
        options: further fields of `WorkerSpec` (cpus, gpus, env, seats).
    """
    arguments = {"handler": handler, "kwargs": dict(kwargs)}
    return WorkerSpec(role, "roll_core.roles.host:open_host", count, arguments, is_restartable=True, **options)


async def open_host(handler: str, kwargs: Mapping[str, Any]) -> RoleHost:
    """Make the handler, and a host around it."""
    factory: Callable[..., Any] = load_object(handler)
    made = factory(**kwargs)
    return RoleHost(await made if asyncio.iscoroutine(made) else made)


class RoleHost:
    """The object of a worker process (see `WorkerSpec`); `RoleGroup` is its driver.

    Args:
        handler: answers the requests.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._tasks: dict[int, asyncio.Task[Reply]] = {}
        self._done: list[Reply] = []
        self._news = asyncio.Event()

    async def facts(self) -> Any:
        """See `Handler.facts`."""
        return self._handler.facts()

    async def take(self, batch: Sequence[Order]) -> None:
        """Begin with some requests."""
        for number, request in batch:
            task = self._tasks[number] = asyncio.create_task(self._serve(number, request))
            task.add_done_callback(partial(self._end, number))

    async def drop(self, number: int) -> None:
        """Give up a request nobody waits for any more."""
        if (task := self._tasks.get(number)) is not None:
            task.cancel()

    async def pull(self, wait_s: float) -> tuple[list[Reply], dict[str, int]]:
        """What has been done since the last call, and the handler's vitals.

        Args:
            wait_s: how long to wait for something when there is nothing.
        """
        if not self._done:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
            if self._tasks:
                await asyncio.sleep(_LINGER_S)
        replies, self._done = self._done, []
        return replies, dict(self._handler.vitals())

    async def close(self) -> None:
        """Give up everything and end the handler."""
        for task in self._tasks.values():
            task.cancel()
        await self._handler.close()

    async def _serve(self, number: int, request: bytes) -> Reply:
        try:
            return number, await self._handler.serve(request), ""
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it belongs to whoever asked
            return number, None, f"{type(error).__name__}: {error}"

    def _end(self, number: int, task: asyncio.Task[Reply]) -> None:
        """Also of a request that was given up before it began."""
        del self._tasks[number]
        self._done.append((number, None, "it was given up") if task.cancelled() else task.result())
        self._news.set()
