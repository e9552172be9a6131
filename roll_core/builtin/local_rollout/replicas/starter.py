"""Starts replicas: a worker process each, on a seat of the run's placement where there is one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roll_core.cluster import Executor, Seat, WorkerGroup, WorkerSpec
from roll_core.errors import ConfigError

ROLE = "rollout"
"""Role of the replicas in a placement; that of a process has a number behind it."""


class Starter:
    """Safe from any thread.

    Args:
        executor: starts the processes.
        arguments: of `worker.make_replica`.
        cpus: cores, and so threads, of one replica.
        bound_s: longest start in seconds.
    """

    def __init__(self, executor: Executor, arguments: Mapping[str, Any], *, cpus: int, bound_s: float) -> None:
        self._executor = executor
        self._arguments = arguments
        self._cpus = cpus
        self._bound_s = bound_s
        seats = executor.seats(ROLE)
        self._planned = None if seats is None else len(seats)
        self._free: list[Seat] = list(seats or ())
        self._taken: dict[str, Seat] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def start(self, count: int) -> list[WorkerGroup]:
        """Start replicas, all at once; blocks until they are ready. On failure none of them is left.

        Raises:
            ConfigError: the placement has no seats for them.
            Exception: whatever the first one raised that could not start.
        """
        names = self._reserve(count)
        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(self._start, name) for name in names]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if not errors:
            return [future.result() for future in futures]
        for name, future in zip(names, futures, strict=True):
            if future.exception() is None:
                future.result().close()
            self.give_back(name)
        raise errors[0]

    def give_back(self, name: str) -> None:
        """A replica has ended; its seat is free. Once more does nothing."""
        with self._lock:
            seat = self._taken.pop(name, None)
            if seat is not None:
                self._free.append(seat)

    def _reserve(self, count: int) -> Sequence[str]:
        with self._lock:
            if self._planned is not None and count > len(self._free):
                raise ConfigError(
                    f"{count} more replicas do not fit: the placement has {self._planned} seats for rollout, of which "
                    f"{len(self._free)} are free (`roll plan` shows them)"
                )
            names = [f"{ROLE}-{next(self._numbers)}" for _ in range(count)]
            if self._planned is not None:
                self._taken |= {name: self._free.pop(0) for name in names}
            return names

    def _start(self, name: str) -> WorkerGroup:
        seat = self._taken.get(name)
        spec = WorkerSpec(
            role=name,
            factory="roll_core.builtin.local_rollout.replicas.worker:make_replica",
            count=1,
            kwargs=self._arguments,
            cpus=self._cpus,
            is_restartable=True,
            seats=None if seat is None else (seat,),
        )
        return self._executor.start(spec, timeout_s=self._bound_s)
