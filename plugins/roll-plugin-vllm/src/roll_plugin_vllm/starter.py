"""Starts replicas: one worker process each, on a seat of the run's placement where there is one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roll_core.cluster import Executor, Seat, WorkerSpec
from roll_core.errors import ConfigError
from roll_plugin_vllm.link import Link
from roll_plugin_vllm.options import VllmOptions

ROLE = "rollout"
"""Role of the replicas in a placement; that of the processes has a number behind it."""


class Starter:
    """Call it to start replicas.

    Args:
        executor: starts their processes.
        arguments: of `replica.start_replica`.
        options: bounds and shares.
        seats: the placement's; None where nothing is planned.
        is_cpu: replicas use no devices.
    """

    def __init__(
        self,
        executor: Executor,
        arguments: Mapping[str, Any],
        options: VllmOptions,
        seats: Sequence[Seat] | None,
        *,
        is_cpu: bool,
    ) -> None:
        self.put = executor.put
        self._executor = executor
        self._options = options
        self._arguments = arguments
        self._gpus = 0.0 if is_cpu else float(options.span)
        self._seats = seats
        self._free = list(seats or ())
        self._taken: dict[str, Seat] = {}
        self._names = (f"{ROLE}-{number}" for number in itertools.count())
        self._lock = threading.Lock()

    def __call__(self, count: int) -> list[Link]:
        """Start replicas, all at once; blocks until they are ready. On failure none of them is left.

        Raises:
            ConfigError: the placement has no seat for them.
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
                self.end(future.result())
            else:
                self.give_back(name)
        raise errors[0]

    def end(self, link: Link) -> None:
        """End a replica that nobody uses."""
        link.close()
        self.give_back(link.name)

    def give_back(self, name: str) -> None:
        """A replica has ended; its seat is free."""
        with self._lock:
            seat = self._taken.pop(name, None)
            if seat is not None:
                self._free.append(seat)

    def _reserve(self, count: int) -> list[str]:
        with self._lock:
            if self._seats is not None and count > len(self._free):
                raise ConfigError(
                    f"{count} more replicas do not fit: the placement has {len(self._seats)} seats for rollout "
                    f"(`roll plan` shows them), {len(self._free)} of them free"
                )
            names = [next(self._names) for _ in range(count)]
            if self._seats is not None:
                self._taken |= {name: self._free.pop(0) for name in names}
            return names

    def _start(self, name: str) -> Link:
        seat = self._taken.get(name)
        spec = WorkerSpec(
            role=name,
            factory="roll_plugin_vllm.replica:start_replica",
            count=1,
            kwargs=self._arguments,
            gpus=self._gpus,
            cpus=self._options.cpus_per_replica,
            is_restartable=True,
            seats=None if seat is None else (seat,),
        )
        return Link(self._executor.start(spec, timeout_s=self._options.start_timeout_s))
