"""The rollout backend over several processes (`contracts.RolloutBackend`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from roll_core.builtin.local_rollout.replicas.fleet import Bounds, Fleet
from roll_core.builtin.local_rollout.replicas.member import Flight
from roll_core.builtin.local_rollout.replicas.parcel import Parcel
from roll_core.builtin.local_rollout.replicas.starter import Starter
from roll_core.builtin.local_rollout.replicas.worker import Facts
from roll_core.cluster import Executor
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError, ConfigError
from roll_core.types import Completion, GenerateRequest


class ReplicatedBackend:
    """Generates with the local engine in processes of role `rollout-<n>`.

    What a request draws, and with which log-probabilities, is what `LocalRolloutBackend` makes of it, wherever it runs:
    see there for how exactly. A request whose replica is lost or leaves begins anew on another one, hence with the same
    result, unless the weights have changed meanwhile. The driver keeps a packed copy of the last weights, for replicas
    that join or are replaced.

    Args:
        model: Hugging Face folder, which every machine sees.
        seed: the run's seed.
        executor: starts the processes.
        replicas: how many.
        cpus: cores, and so threads, of one replica.
        bounds: what may be waited for.
        options: of each replica's `LocalRolloutBackend`.

    Raises:
        ConfigError: options and the run's placement contradict each other.
        BackendError: the model cannot be loaded or run.
    """

    def __init__(
        self,
        *,
        model: Path,
        seed: int,
        executor: Executor,
        replicas: int,
        cpus: int,
        bounds: Bounds,
        options: Mapping[str, Any],
    ) -> None:
        arguments = {"model": Path(model), "seed": seed, "options": dict(options)}
        self._put = executor.put
        self._starter = Starter(executor, arguments, cpus=cpus, bound_s=bounds.start_s)
        self._fleet = Fleet(bounds, self._starter.give_back)
        self._running: dict[str, Flight] = {}
        self._scaling = threading.Lock()
        self._is_closed = False
        try:
            self._grow(replicas)
        except BaseException:
            self._fleet.close()
            raise

    # --- contract -----------------------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """Version of the weights in use; 0 until the first sync."""
        return self._fleet.weights.version

    async def generate(self, request: GenerateRequest) -> Completion:
        """Generate one continuation.

        Raises:
            BackendError: the request cannot be served, or the engine failed while it was running.
            WorkerLost: every replica is lost and could not be replaced, or this request seems to be the cause.
        """
        if self._is_closed:
            raise BackendError("the rollout backend was closed")
        if request.request_id in self._running:
            raise BackendError(f"a request with id '{request.request_id}' is running already; ids must differ")
        limits = self._facts.limits
        limits.check(request)
        flight = Flight(request, limits.new_tokens(request))
        if flight.cost <= 0:
            flight.end_empty("length")
            return flight.future.result()
        self._running[request.request_id] = flight
        try:
            self._fleet.dispatch(flight)
            return await asyncio.wrap_future(flight.future)
        except asyncio.CancelledError:
            self._fleet.drop(flight)
            raise
        finally:
            del self._running[request.request_id]

    def abort(self, request_id: str) -> None:
        """End a running request; its `generate` call returns the tokens made so far. Unknown ids are ignored."""
        flight = self._running.get(request_id)
        if flight is not None:
            self._fleet.abort(flight)

    def sync_weights(self, source: WeightSource, version: int) -> None:
        """Take over the weights of `source` on every replica; tokens drawn from then on carry `version`.

        They are packed once and sent by reference. Running requests go on with the keys and values they have. Blocks
        until all replicas have them; one that is lost meanwhile is replaced by one that has.

        Raises:
            BackendError: the weights do not fit; the old ones stay in use.
            WorkerLost, Stuck: no replica is left, or none came back in time.
        """
        weights = self._put(Parcel.of(source))
        try:
            self._fleet.publish(weights, version)
        except BaseException:
            weights.release()
            raise

    def set_barrier(self, barrier: Callable[[], Awaitable[None]] | None) -> None:
        """Refuse a barrier: every replica steps on its own, so what an early stop cuts off would depend on the clock.

        Raises:
            ConfigError: always, unless `barrier` is None.
        """
        if barrier is not None:
            raise ConfigError(
                "rollout.early_stop in sync mode needs the engine to wait for verdicts between its steps, which "
                "replicas do not do together; set rollout.backend.replicas: 0 or rollout.early_stop: false"
            )

    async def close(self) -> None:
        """Fail what is running and end the replicas. Closing twice is allowed."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._fleet.close)

    # --- beyond the contract ------------------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        """Let replicas join or leave while the run goes on; returns when those that join serve.

        Those that join get the weights of now first. Those that leave are the least busy ones.

        Raises:
            ConfigError: a count that cannot be, or more than the placement has seats for.
            Exception: whatever a replica raised that could not start; the others stay.
        """
        if replicas < 1:
            raise ConfigError(f"rollout needs at least one replica, got {replicas}")
        with self._scaling:
            loads = self._fleet.loads()
            if replicas > len(loads):
                self._grow(replicas - len(loads))
            for name in sorted(loads, key=loads.__getitem__)[: max(len(loads) - replicas, 0)]:
                self._fleet.leave(name)

    def take_metrics(self) -> dict[str, float]:
        """`rollout/replicas_live`; since the start, `rollout/replicas_lost` and `rollout/requests_redone`."""
        return self._fleet.metrics()

    def _grow(self, count: int) -> None:
        groups = self._starter.start(count)
        for position, group in enumerate(groups):
            try:
                self._fleet.join(group)
            except BaseException:
                for left in groups[position:]:
                    left.close()
                    self._starter.give_back(left.role)
                raise

    @property
    def _facts(self) -> Facts:
        facts = self._fleet.facts
        if facts is None:
            raise BackendError("no rollout replica has joined yet")
        return facts
