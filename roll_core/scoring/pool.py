"""The verifier pool: warm worker processes with hard deadlines, async verifiers beside them."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import pickle
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, Self
from weakref import WeakKeyDictionary

from roll_core.errors import ComponentError, unknown_name
from roll_core.scoring.lane import Job, Lane, Limits
from roll_core.scoring.serve import VerifierSpec, VerifyRequest, checked, deadline_of, describe
from roll_core.scoring.workers import ProcessWorker, ThreadWorker
from roll_core.types import Prompt, Rollout, Verdict

logger = logging.getLogger(__name__)

Kind = Literal["sync", "async"]
UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)
"""What `pickle` raises for something that cannot travel."""


class VerdictPool(Protocol):
    """Judges responses somewhere; `VerifierPool` does it here."""

    async def start(self) -> None:
        """Get ready."""
        ...

    async def close(self) -> None:
        """End everything; waiters get an error verdict. May be called again."""
        ...

    async def verify(
        self,
        key: str,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        **options: Any,
    ) -> Verdict:
        """See `VerifierPool.verify`."""
        ...

    def check(self) -> None:
        """Raise what makes every further verdict impossible, if anything does."""
        ...

    def take_metrics(self) -> dict[str, float]:
        """What a step reports of the pool itself (`scoring/...`)."""
        ...


class VerifierPool:
    """Judges responses; whatever a verifier does, every call returns a verdict.

    * Synchronous verifiers run in `workers` child processes, one verdict each at a time. One that overruns `timeout_s`
      is killed and replaced (`ERROR`, detail "timeout"); one that dies is replaced ("crashed"); an exception is
      "raised", a result that is no verdict "bad_result". None of these is a score.
    * Verifiers whose `verify` is a coroutine function run in the caller's event loop, many at once.
    * With `workers=0`, and for verifiers that cannot be pickled (objects of a notebook, lambdas; a warning says so),
      a thread of the driver does the work. The caller is still answered in time, but the overrun thread cannot be
      stopped and runs on.

    Args:
        specs: how each verifier is built, by the key that `verify` is called with (usually the domain).
        workers: number of child processes.
        timeout_s: deadline of one verdict in seconds, from its start (waiting for a free worker apart); a verifier
            whose own `deadline_s` is longer gets that.
        start_timeout_s: how long a worker may take to start, or a verifier to be built, in seconds.
        concurrency: verdicts of async verifiers under way at once.
        memory_gib: limit of a worker's private memory; None sets none.
        takes_local: whether verifiers that only the driver's process can build run here, in a thread; otherwise they
            are named in `left_out`.
    """

    def __init__(
        self,
        specs: Mapping[str, VerifierSpec],
        *,
        workers: int,
        timeout_s: float,
        start_timeout_s: float = 120.0,
        concurrency: int = 64,
        memory_gib: float | None = 8.0,
        takes_local: bool = True,
    ) -> None:
        if workers < 0 or timeout_s <= 0 or start_timeout_s <= 0 or concurrency < 1:
            raise ValueError("workers must be >= 0, timeout_s and start_timeout_s > 0, concurrency >= 1")
        self._specs = dict(specs)
        self._workers = workers
        self._limits = Limits(timeout_s, start_timeout_s)
        self._concurrency = concurrency
        self._memory_gib = memory_gib
        self._takes_local = takes_local
        self.left_out: tuple[str, ...] = ()
        """Keys of verifiers that cannot be built here."""
        self._limits_s: dict[str, float] = {}
        self._lanes: list[Lane] = []
        self._queues: dict[str, queue.SimpleQueue[Job | None]] = {}
        self._jobs: set[Job] = set()
        self._async: dict[str, Any] = {}
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._state = "new"

    @property
    def replaced(self) -> int:
        """How many workers were lost and replaced since the start."""
        return sum(lane.replaced for lane in self._lanes)

    def kinds(self) -> dict[str, tuple[Kind, float]]:
        """Of each verifier: in a worker ("sync") or in the event loop ("async"), and its deadline in seconds."""
        return {key: ("async" if key in self._async else "sync", limit_s) for key, limit_s in self._limits_s.items()}

    def check(self) -> None:
        """See `VerdictPool.check`; lost workers are replaced, so there is nothing to raise."""

    def take_metrics(self) -> dict[str, float]:
        """`scoring/workers_replaced`, since the start."""
        return {"scoring/workers_replaced": float(self.replaced)}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- life ---

    async def start(self) -> None:
        """Start the workers and build every verifier in each of them.

        Raises:
            ComponentError: a verifier could not be built; the pool is closed.
        """
        if self._state != "new":
            raise RuntimeError(f"the verifier pool is {self._state}")
        self._state = "open"
        try:
            await self._start_lanes()
        except BaseException:
            await self.close()
            raise
        atexit.register(self._abort)

    async def close(self) -> None:
        """Kill every worker; waiters get an error verdict with detail "closed". May be called again."""
        if self._state == "closed":
            return
        self._abort()
        atexit.unregister(self._abort)
        for task in self._tasks:
            task.cancel()
        for lane in self._lanes:
            await asyncio.to_thread(lane.join, 5.0)
        for job in tuple(self._jobs):
            job.answer(_closed())
        await self._let_go()

    def _abort(self) -> None:
        self._state = "closed"
        for lane in self._lanes:
            lane.abort()

    async def _start_lanes(self) -> None:
        pickled = self._pickled_specs() if self._workers else {}
        local = [key for key in self._specs if key not in pickled]
        if pickled:
            make = partial(ProcessWorker, pickled, self._memory_gib, self._limits.start_s)
            local += await self._start_kind(make, list(pickled), self._workers)
        if not self._takes_local:
            self.left_out = tuple(local)
        elif local:
            specs = {key: self._specs[key] for key in local}
            await self._start_kind(partial(ThreadWorker, specs), local, 1)

    def _pickled_specs(self) -> dict[str, bytes]:
        pickled = {}
        for key, spec in self._specs.items():
            try:
                pickled[key] = pickle.dumps(spec)
            except UNPICKLABLE as error:
                self._warn_local(key, str(error))
        return pickled

    def _warn_local(self, key: str, why: str) -> None:
        if not self._takes_local:
            return
        text = "verifier '%s' (%s) cannot be sent to a worker process (%s): a thread of the driver runs it, without "
        logger.warning(text + "a deadline that can be enforced", self._specs[key].name, key, why)

    async def _start_kind(
        self, make: Callable[[], ProcessWorker | ThreadWorker], keys: list[str], count: int
    ) -> list[str]:
        """Start `count` lanes for `keys` and return those keys that no other process can build.

        The first lane finds out which verifiers are async; the driver builds those for itself.
        """
        jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        lanes = [Lane(jobs, self._specs, make, self._limits) for _ in range(count)]
        self._lanes += lanes
        kinds = await asyncio.wrap_future(lanes[0].start(keys))
        chosen = {kind: [key for key in keys if kinds[key] == kind] for kind in ("sync", "async", "local")}
        self._queues.update(dict.fromkeys(chosen["sync"], jobs))
        for key in chosen["async"]:
            self._async[key] = await asyncio.to_thread(self._specs[key].build)
            self._limits_s[key] = self._limits.of_verdict(deadline_of(self._async[key]))
            await self._prepare(key)
        self._limits_s.update({key: lanes[0].limit_of(key) for key in chosen["sync"]})
        for key in chosen["local"]:
            self._warn_local(key, "it is defined in the main script or session; put it into a module")
        await asyncio.gather(*(asyncio.wrap_future(lane.start(chosen["sync"])) for lane in lanes[1:]))
        return chosen["local"]

    async def _prepare(self, key: str) -> None:
        """Get an async verifier ready, within the time that starting may take.

        Raises:
            ComponentError: it failed, or took too long.
        """
        prepare = getattr(self._async[key], "prepare", None)
        if prepare is None:
            return
        name = self._specs[key].name
        try:
            await asyncio.wait_for(prepare(), self._limits.start_s)
        except TimeoutError:
            raise ComponentError(f"verifier '{name}' ({key}) was not ready within {self._limits.start_s:g} s") from None
        except Exception as error:
            raise ComponentError(f"verifier '{name}' ({key}) could not get ready: {describe(error)}") from error

    async def _let_go(self) -> None:
        """Close the async verifiers that can be closed; one that fails is logged."""
        for key, verifier in self._async.items():
            close = getattr(verifier, "close", None)
            if close is None:
                continue
            try:
                done = close()
                if inspect.isawaitable(done):
                    await done
            except Exception:
                logger.exception("verifier '%s' (%s) could not be closed", self._specs[key].name, key)

    # --- verdicts ---

    async def verify(
        self,
        key: str,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        **options: Any,
    ) -> Verdict:
        """Judge one response with the verifier `key`. The verdict names verifier, version and seconds.

        Args:
            key: one of the keys of `specs`.
            response: what the policy wrote.
            reference: what to compare with.
            prompt: the task, for verifiers that look at it.
            rollout: the rollout, for verifiers that look at it; extra columns of its segments are left out.
            options: further keyword arguments of the verifier's `verify`.

        Raises:
            UnknownNameError: there is no such key.
            RuntimeError: the pool is not open.
        """
        if key not in self._specs:
            raise unknown_name("verifier key", key, self._specs)
        if self._state != "open":
            raise RuntimeError(f"the verifier pool is {self._state}; verify needs start() before and close() after")
        request = VerifyRequest(key, response, reference, prompt, rollout, options).lightened()
        if key in self._async:
            return await self._verify_async(request)
        job = Job(request)
        self._jobs.add(job)
        try:
            self._queues[key].put(job)
            return await asyncio.wrap_future(job.future)
        finally:
            self._jobs.discard(job)

    async def _verify_async(self, request: VerifyRequest) -> Verdict:
        spec = self._specs[request.key]
        gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency))
        async with gate:
            started = time.perf_counter()
            verdict = await self._await_verdict(request) if self._state == "open" else _closed()
        return verdict.stamped(verifier=spec.name, version=spec.version, seconds=time.perf_counter() - started)

    async def _await_verdict(self, request: VerifyRequest) -> Verdict:
        """Run an async verifier; one that ignores its cancellation is left behind, not waited for."""
        verifier = self._async[request.key]
        limit_s = self._limits_s[request.key]
        task = asyncio.create_task(_call(verifier, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=limit_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            logger.warning("verifier '%s' overran %g s", self._specs[request.key].name, limit_s)
            return Verdict.error(f"no verdict within {limit_s:g} s", detail="timeout")
        return _closed() if task.cancelled() else task.result()


async def _call(verifier: Any, request: VerifyRequest) -> Verdict:
    try:
        result = await verifier.verify(
            request.response, request.reference, prompt=request.prompt, rollout=request.rollout, **request.options
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a verifier may raise anything; it becomes a verdict
        return Verdict.error(describe(error), detail="raised")
    return checked(result)


def _closed() -> Verdict:
    return Verdict.error("the verifier pool was closed", detail="closed")
