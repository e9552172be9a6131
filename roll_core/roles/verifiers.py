"""The verifier pool in processes of its own: on other machines, and not lost with any one of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Mapping
from typing import Any, Self

from roll_core.cluster import Executor, Stuck, WorkerLost
from roll_core.errors import RollError, unknown_name
from roll_core.roles.desk import RoleClosed
from roll_core.roles.group import RoleGroup, RoleLimits
from roll_core.roles.host import host_spec
from roll_core.roles.roster import Room
from roll_core.roles.verifier_host import VerifierFacts, unpack_verdict
from roll_core.scoring import VerifierPool, VerifierSpec
from roll_core.scoring.pool import UNPICKLABLE
from roll_core.scoring.serve import VerifyRequest
from roll_core.types import Prompt, Rollout, Verdict

ROLE = "verifiers"
_LEAST, _MOST = 2, 16
"""Synchronous verdicts that a host has for each of its workers: the next ones are there when the last is done."""
_RENAMED = {"requests_retried": "verdicts_retried", "requests_lost": "verdicts_lost"}


class HostedVerifierPool:
    """Judges responses in `hosts` processes with a `VerifierPool` each; fits `scoring.VerdictPool`.

    * What one verifier does wrong ends in its host, as it would in a pool of the driver.
    * A host that is lost is replaced. What it was judging is judged again elsewhere, once: a verdict that two hosts
      were lost with becomes an error without a score (detail "host_lost").
    * Async verifiers run in the hosts' event loops, built once in each. One that blocks the loop makes the host silent:
      it is replaced like a lost one.
    * Verifiers that only the driver's process can build run there, as without hosts.
    * When no host is left and none comes up, what waits becomes an error, and `verify` and `check` raise `WorkerLost`.

    Hosts ask for no devices: on Ray, a verifier with a model of its own runs on the CPU there.

    Args:
        specs: how each verifier is built, by the key that `verify` is called with.
        executor: starts the hosts.
        hosts: how many.
        workers: child processes of each host.
        timeout_s: deadline of one verdict in seconds, see `VerifierPool`.
        start_timeout_s: how long a worker may take to start, or a verifier to be built, in seconds.
        concurrency: verdicts of async verifiers under way at once in one host.
        memory_gib: limit of a worker's private memory; None sets none.
        host_cpus: cores that a host reserves; None takes one for each worker.
        limits: how long to wait for a host; a verdict waits `silence_s` longer than its deadline at most.
    """

    def __init__(
        self,
        specs: Mapping[str, VerifierSpec],
        executor: Executor,
        *,
        hosts: int,
        workers: int,
        timeout_s: float,
        start_timeout_s: float = 120.0,
        concurrency: int = 64,
        memory_gib: float | None = 8.0,
        host_cpus: float | None = None,
        limits: RoleLimits | None = None,
    ) -> None:
        if hosts < 1 or workers < 1:
            raise ValueError("hosts and workers must be at least 1")
        self._specs = dict(specs)
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._limits = limits or RoleLimits(start_s=2 * start_timeout_s)
        arguments = {
            "specs": _pickled(specs),
            "workers": workers,
            "timeout_s": timeout_s,
            "start_timeout_s": start_timeout_s,
            "concurrency": concurrency,
            "memory_gib": memory_gib,
        }
        spec = host_spec(
            ROLE,
            "roll_core.roles.verifier_host:open_verifiers",
            hosts,
            arguments,
            cpus=float(workers) if host_cpus is None else host_cpus,
            env={"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},  # of each worker, not of the whole host
        )
        ahead = Room(workers, _LEAST * workers, _MOST * workers)
        rooms = {"sync": ahead, "async": Room.of(concurrency)}
        self._group = RoleGroup(executor, spec, rooms=rooms, limits=self._limits)
        self._facts = VerifierFacts({}, ())
        self._longest_s = 0.0
        self._own: VerifierPool | None = None
        self._state = "new"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the hosts, build every verifier in each.

        Raises:
            ComponentError: a verifier could not be built; the pool is closed.
            PlacementError, PluginError, WorkerLost, Stuck: as `Executor.start`.
        """
        if self._state != "new":
            raise RuntimeError(f"the verifier pool is {self._state}")
        self._state = "starting"
        try:
            self._facts = await asyncio.to_thread(self._group.start)
            synchronous = [limit_s for kind, limit_s in self._facts.kinds.values() if kind == "sync"]
            self._longest_s = max(synchronous, default=0.0)
            await self._start_own([key for key in self._specs if key not in self._facts.kinds])
        except BaseException:
            await self.close()
            raise
        self._state = "open"

    async def close(self) -> None:
        """End the hosts; waiters get an error verdict with detail "closed". May be called again."""
        self._state = "closed"
        await asyncio.to_thread(self._group.close)
        if self._own is not None:
            await self._own.close()

    async def _start_own(self, keys: list[str]) -> None:
        """Build here what no other process can build; it says so itself."""
        if keys:
            self._own = VerifierPool(
                {key: self._specs[key] for key in keys},
                workers=1,
                timeout_s=self._timeout_s,
                start_timeout_s=self._start_timeout_s,
            )
            await self._own.start()

    # --- verdicts -----------------------------------------------------------------------------------------------------

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
        """See `VerifierPool.verify`.

        Raises:
            UnknownNameError: there is no such key.
            RuntimeError: the pool is not open.
            WorkerLost: no host is left, and none could be started.
        """
        if key not in self._specs:
            raise unknown_name("verifier key", key, self._specs)
        if self._state != "open":
            raise RuntimeError(f"the verifier pool is {self._state}; verify needs start() before and close() after")
        if key not in self._facts.kinds:
            assert self._own is not None  # started for exactly these keys
            return await self._own.verify(key, response, reference, prompt=prompt, rollout=rollout, **options)
        started = time.perf_counter()
        try:
            request = pickle.dumps(VerifyRequest(key, response, reference, prompt, rollout, options).lightened())
        except UNPICKLABLE as error:
            return self._error(key, f"the request cannot be sent: {error}", "machinery", started)
        words = f"verdict of '{self._specs[key].name}'" + (f" on prompt {prompt.id}" if prompt is not None else "")
        kind, limit_s = self._facts.kinds[key]
        asking = self._group.ask(request, lane=kind, bound_s=self._bound_s(kind, limit_s), what=words)
        try:
            answer = await asyncio.wrap_future(asking)
        except RoleClosed:
            return self._error(key, "the verifier pool was closed", "closed", started)
        except (WorkerLost, Stuck) as error:
            return self._error(key, str(error), "host_lost", started)
        except RollError as error:
            return self._error(key, str(error), "machinery", started)
        return unpack_verdict(answer.value)

    def check(self) -> None:
        """See `VerdictPool.check`.

        Raises:
            WorkerLost: no host is left, and none could be started.
        """
        if self._state == "open":
            self._group.check()

    @property
    def replaced(self) -> int:
        """How many workers were lost and replaced since the start, in hosts that are there and in those that were."""
        own = self._own.replaced if self._own is not None else 0
        return self._group.vitals().get("workers_replaced", 0) + own

    def take_metrics(self) -> dict[str, float]:
        """What `VerifierPool.take_metrics` has, and how the hosts are.

        `scoring/hosts_live`; since the start `scoring/hosts_lost`, `scoring/hosts_restarted`,
        `scoring/verdicts_retried` and `scoring/verdicts_lost`; since the last call `scoring/queue_max` and
        `scoring/host_verdicts/<host>`.
        """
        found = {f"scoring/{name}": value for name, value in self._group.take_metrics().items()}
        for name, ours in _RENAMED.items():
            found[f"scoring/{ours}"] = found.pop(f"scoring/{name}")
        for index in range(self._hosts):
            found[f"scoring/host_verdicts/{index}"] = found.pop(f"scoring/answered/{index}")
        return found | {"scoring/workers_replaced": float(self.replaced)}

    def _bound_s(self, kind: str, limit_s: float) -> float:
        """How long a verdict may take; for a host that does not keep its verifiers' deadlines, as hosts do.

        A worker may have to be started anew before it and once meanwhile (one that was killed is asked again).
        """
        if kind == "async":
            return limit_s + self._limits.silence_s
        return 2 * self._longest_s + self._start_timeout_s + self._limits.silence_s

    def _error(self, key: str, reason: str, detail: str, started: float) -> Verdict:
        spec = self._specs[key]
        verdict = Verdict.error(reason, detail=detail)
        return verdict.stamped(verifier=spec.name, version=spec.version, seconds=time.perf_counter() - started)


def _pickled(specs: Mapping[str, VerifierSpec]) -> dict[str, bytes]:
    """Those that can travel."""
    pickled: dict[str, bytes] = {}
    for key, spec in specs.items():
        try:
            pickled[key] = pickle.dumps(spec)
        except UNPICKLABLE:
            continue  # it stays with the driver, whose pool says so
    return pickled
