"""The worker's side: one object, the thread it lives on, and the orders it carries out.

Everything of the object happens on one thread with an event loop. Plain methods run outside the running loop, one after
the other in the order they were called; coroutine methods run in it, many at once, while no plain method runs. Other
threads of the process (the one that reads messages) stay free, so that a busy worker can still be asked about itself.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from roll_core.cluster.reference import Buffer, Parts, pack, unpack
from roll_core.errors import ComponentError
from roll_core.plugin.component import load_object

Order = Literal["build", "call", "stop"]
Reply = tuple[Literal["ok"], Any] | tuple[Literal["raised"], bytes | None, str, str]
"""A result; or an error: its pickle (None when it has none), its type and text, its traceback."""


@dataclass(slots=True, eq=False)
class Job:
    """One order on its way through the worker."""

    number: int
    """Orders are carried out in this sequence, from 0 on without gaps."""
    order: Order
    method: str
    parts: Sequence[Buffer]
    references: Sequence[Sequence[Buffer]] = ()
    future: Future[Parts] = field(default_factory=Future)
    """The packed `Reply`."""
    task: asyncio.Task[None] | None = None
    is_cancelled: bool = False


class Servant:
    """A worker object and its thread."""

    def __init__(self) -> None:
        self._object: Any = None
        self._loop = asyncio.new_event_loop()
        self._inbox: asyncio.Queue[Job] = asyncio.Queue()
        self._lock = threading.Lock()
        self._early: dict[int, Job] = {}
        self._next = 0
        self._open: dict[int, Job] = {}
        self._thread = threading.Thread(target=self._run, name="roll-worker", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int:
        """Identifier of the object's thread, as `faulthandler` writes it."""
        return self._thread.ident or 0

    def submit(self, job: Job) -> Future[Parts]:
        """Take an order; one that overtook earlier ones waits for them. Any thread but the worker's own."""
        with self._lock:
            self._early[job.number] = job
            self._open[job.number] = job
            while (ready := self._early.pop(self._next, None)) is not None:
                self._next += 1
                self._loop.call_soon_threadsafe(self._inbox.put_nowait, ready)
        return job.future

    def cancel(self, number: int) -> None:
        """Cancel a coroutine, or an order that has not begun; a plain method that runs goes on. Any thread."""
        self._loop.call_soon_threadsafe(self._cancel, number)

    def coroutines(self, timeout_s: float = 1.0) -> str:
        """Stacks of the coroutine methods in flight; empty when the event loop does not come to it in time."""
        answer: Future[str] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(self._coroutine_stacks()))
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            return ""

    # --- on the worker's thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            job = self._loop.run_until_complete(self._next_plain())
            try:
                value = self._carry_out(job)
            except BaseException as error:  # noqa: BLE001 - every error belongs to whoever called
                self._reply_error(job, error)
            else:
                self._reply_value(job, value)

    async def _next_plain(self) -> Job:
        """Start coroutine methods until a plain one comes."""
        while True:
            job = await self._inbox.get()
            if job.order != "call" or job.is_cancelled or not inspect.iscoroutinefunction(self._method(job)):
                return job
            job.task = self._loop.create_task(self._serve(job))

    async def _serve(self, job: Job) -> None:
        try:
            args, kwargs = self._arguments(job)
            value = await self._method(job)(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - a cancelled task and an exit have to be answered too
            self._reply_error(job, error)
        else:
            self._reply_value(job, value)

    def _carry_out(self, job: Job) -> Any:
        if job.is_cancelled:
            raise asyncio.CancelledError
        if job.order == "stop":
            close = getattr(self._object, "close", None)
            return self._settle(close()) if callable(close) else None
        args, kwargs = self._arguments(job)
        if job.order == "build":
            environment, factory, arguments = args
            os.environ.update(environment)
            self._object = self._settle(load_object(factory)(**arguments))
            return None
        return self._settle(self._method(job)(*args, **kwargs))

    def _settle(self, value: Any) -> Any:
        """Wait for what turned out to be awaitable."""
        return self._loop.run_until_complete(_awaited(value)) if inspect.isawaitable(value) else value

    def _method(self, job: Job) -> Callable[..., Any]:
        method: Callable[..., Any] | None = getattr(self._object, job.method, None)
        return method if callable(method) else _missing(type(self._object).__name__, job.method)

    def _arguments(self, job: Job) -> tuple[Any, Any]:
        try:
            args, kwargs = unpack(job.parts, job.references)
        except Exception as error:
            raise ComponentError(
                f"the arguments of '{job.method}' cannot be read in the worker ({type(error).__name__}: {error}); "
                "define their classes at the top level of a module that workers can import"
            ) from error
        job.parts, job.references = (), ()
        return args, kwargs

    def _reply_value(self, job: Job, value: Any) -> None:
        try:
            parts = pack(("ok", value)).parts
        except Exception as error:  # noqa: BLE001 - a result that cannot be packed is the caller's error
            error.add_note(f"the result of '{job.method}' cannot be sent to the driver")
            self._reply_error(job, error)
        else:
            self._reply(job, parts)

    def _reply_error(self, job: Job, error: BaseException) -> None:
        if isinstance(error, SystemExit):
            _exit(error)
        self._reply(job, pack(("raised", *_describe(error))).parts)

    def _reply(self, job: Job, parts: Parts) -> None:
        with self._lock:
            self._open.pop(job.number, None)
        job.future.set_result(parts)

    def _cancel(self, number: int) -> None:
        with self._lock:
            job = self._open.get(number)
        if job is None:
            return
        job.is_cancelled = True
        if job.task is not None:
            job.task.cancel()

    def _coroutine_stacks(self) -> str:
        with self._lock:
            tasks = [(job.method, job.task) for job in self._open.values() if job.task is not None]
        head = "coroutine '{}' (most recent call last):\n{}"
        return "\n".join(head.format(method, _stack(task.get_coro())) for method, task in tasks)


def _missing(kind: str, method: str) -> Callable[..., Any]:
    def raise_missing(*_: Any, **__: Any) -> Any:
        raise AttributeError(f"the worker object {kind} has no method '{method}'")

    return raise_missing


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _describe(error: BaseException) -> tuple[bytes | None, str, str]:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - made in the line above; an error that cannot be read again is described
    except Exception:  # noqa: BLE001 - an error's own pickling may raise anything; its text travels in any case
        pickled = None
    return pickled, f"{type(error).__name__}: {error}", text


def _stack(coroutine: Coroutine[Any, Any, Any] | Any) -> str:
    """The frames of what the coroutine `Servant._serve` awaits; none before it has begun."""
    frames = io.StringIO()
    coroutine = getattr(coroutine, "cr_await", None)
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.write("".join(traceback.format_stack(frame, limit=1)))
        coroutine = getattr(coroutine, "cr_await", None)
    return frames.getvalue().rstrip()


def _exit(end: SystemExit) -> None:
    """A worker that asks for the end of its process gets it."""
    if end.code is not None and not isinstance(end.code, int):
        sys.stderr.write(f"{end.code}\n")
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
