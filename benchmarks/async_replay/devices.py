"""Generating devices that replay measured durations: continuous batching, behind the vLLM plugin's router."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from async_replay.costs import Costs
from async_replay.workload import Lengths
from roll_core.cluster import Router
from roll_core.types import Completion, FinishReason, GenerateRequest, PolicyRef, VersionRun


@dataclass(slots=True, eq=False)
class Running:
    """A request with a replica."""

    request: GenerateRequest
    length: int
    done: asyncio.Future[Completion]
    begun: float = 0.0
    """Progress of the replica when it got a slot."""
    is_over: bool = False


class Replica:
    """One device. All its live requests get a token in every decode step, so one number tells how far each is.

    Args:
        costs: durations.
    """

    def __init__(self, costs: Costs) -> None:
        self.busy_s = 0.0
        self.live_s = 0.0
        """Live requests, summed over time."""
        self._costs = costs
        self._waiting: list[Running] = []
        self._live: list[tuple[float, int, Running]] = []
        self._count = self._joined = 0
        self._progress = 0.0
        """Decode steps made."""
        self._since = self._halted_until = 0.0
        self._versions: list[tuple[float, int]] = [(0.0, 0)]
        """(progress, version) of every change of weights."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: Running) -> None:
        """Queue a request."""
        self._catch_up()
        self._waiting.append(one)
        self._fill()

    def abort(self, one: Running) -> None:
        """End a request with the tokens it has."""
        self._catch_up()
        if one in self._waiting:
            self._waiting.remove(one)
            one.begun = self._progress
        else:
            self._count -= 1
        self._end(one, min(int(self._progress - one.begun), one.length), "abort")
        self._fill()

    def change_weights(self, version: int, seconds: float) -> None:
        """Tokens are of `version` from now on; nothing is decoded for some seconds."""
        self._catch_up()
        self._versions.append((self._progress, version))
        self._halted_until = asyncio.get_running_loop().time() + seconds
        self._fill()

    def _catch_up(self) -> None:
        """Bring the progress to the time of now."""
        now = asyncio.get_running_loop().time()
        if self._count:
            seconds = max(0.0, now - max(self._since, self._halted_until))
            self._progress += seconds / self._costs.step(self._count)
            self.busy_s += seconds
            self.live_s += seconds * self._count
        self._since = now
        while self._live and (self._live[0][2].is_over or self._live[0][0] <= self._progress + 1e-6):
            one = heapq.heappop(self._live)[2]
            if not one.is_over:
                self._count -= 1
                self._end(one, one.length, "stop")

    def _fill(self) -> None:
        """Give free slots to those who wait, and wake up when the next request ends."""
        while self._waiting and self._count < self._costs.slots:
            one = self._waiting.pop(0)
            one.begun = self._progress
            self._count += 1
            self._joined += 1
            heapq.heappush(self._live, (self._progress + one.length, self._joined, one))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live:
            loop = asyncio.get_running_loop()
            seconds = max(0.0, self._live[0][0] - self._progress) * self._costs.step(max(1, self._count))
            self._timer = loop.call_at(max(loop.time(), self._halted_until) + seconds, self._wake)

    def _wake(self) -> None:
        self._catch_up()
        self._fill()

    def _end(self, one: Running, tokens: int, reason: FinishReason) -> None:
        one.is_over = True
        logprobs = np.zeros(tokens, np.float32)
        runs = self._runs(one.begun, tokens)
        ids = np.zeros(tokens, np.int32)
        one.done.set_result(Completion(one.request.request_id, ids, logprobs, runs, reason))

    def _runs(self, begun: float, tokens: int) -> tuple[VersionRun, ...]:
        """Which tokens were sampled under which weights."""
        edges = [(max(0, min(tokens, round(at - begun))), version) for at, version in self._versions]
        stops = [start for start, _ in edges[1:]] + [tokens]
        return tuple(VersionRun(a, b, PolicyRef(v)) for (a, v), b in zip(edges, stops, strict=True) if a < b)


@dataclass(slots=True)
class ReplayBackend:
    """A rollout backend over replicas.

    Args:
        costs: durations.
        lengths: how many tokens a request gets.
        replicas: generating devices.
    """

    costs: Costs
    lengths: Lengths
    replicas: list[Replica]
    policy_version: int = 0
    _router: Router = field(default_factory=Router)
    _running: dict[str, tuple[str, Running]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for n in range(len(self.replicas)):
            self._router.join(str(n))

    async def generate(self, request: GenerateRequest) -> Completion:
        """As many tokens as the request's length says."""
        cost = request.sampling.max_new_tokens
        name = self._router.choose(request.group_key, cost)
        assert name is not None
        one = Running(request, self.lengths.of(request.seed), asyncio.get_running_loop().create_future())
        self._running[request.request_id] = name, one
        self.replicas[int(name)].add(one)
        try:
            return await one.done
        finally:
            self._router.release(name, cost)
            del self._running[request.request_id]

    def abort(self, request_id: str) -> None:
        """End a request with the tokens it has."""
        name, one = self._running.get(request_id, ("", None))
        if one is not None and not one.is_over:
            self.replicas[int(name)].abort(one)

    def sync_weights(self, source: Any, version: int) -> None:
        """Tokens carry `version` from now on."""
        self.policy_version = version
        for replica in self.replicas:
            replica.change_weights(version, self.costs.sync)

    def set_barrier(self, barrier: Any) -> None:
        """Nothing is stopped early here."""

    async def close(self) -> None:
        """Nothing to free."""
