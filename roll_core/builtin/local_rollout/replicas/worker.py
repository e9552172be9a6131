"""A replica: today's engine in a worker process. Requests come in, what has ended is fetched."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.limits import Limits
from roll_core.builtin.local_rollout.replicas.parcel import Parcel
from roll_core.errors import BackendError, RollError
from roll_core.types import Completion, GenerateRequest


@dataclass(frozen=True, slots=True)
class Facts:
    """What a replica can do; the same for all of a run."""

    limits: Limits
    precision: str


@dataclass(frozen=True, slots=True)
class News:
    """What became of a replica's requests."""

    ended: tuple[tuple[str, Completion | RollError], ...]
    """Ids and results, or what went wrong."""
    steps: int
    """Steps of its engine so far."""


def make_replica(*, model: Path, seed: int, options: dict[str, Any]) -> Replica:
    """Build the object of a worker process.

    Args:
        model: Hugging Face folder, seen from its machine.
        seed: the run's seed.
        options: of `LocalRolloutBackend`.

    Raises:
        BackendError: the model cannot be loaded or run.
    """
    return Replica(LocalRolloutBackend(model=model, seed=seed, **options))


class Replica:
    """The worker object. Coroutines run while the engine computes; `sync` waits for its step.

    Args:
        backend: generates.
    """

    def __init__(self, backend: LocalRolloutBackend) -> None:
        self._backend = backend
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[tuple[str, Completion | RollError]] = []
        self._news = asyncio.Event()

    def facts(self) -> Facts:
        """What it can do."""
        return Facts(self._backend.limits, self._backend.precision)

    async def take(self, request: GenerateRequest) -> None:
        """Begin a request."""
        self._tasks[request.request_id] = asyncio.create_task(self._generate(request))

    async def abort(self, request_id: str) -> None:
        """End a request; the tokens made so far come with the news."""
        await asyncio.sleep(0)  # one that was taken just before has begun then
        self._backend.abort(request_id)

    async def drop(self, request_id: str) -> None:
        """End a request that nobody waits for."""
        await asyncio.sleep(0)  # as in `abort`
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    async def pull(self, wait_s: float) -> News:
        """What has ended since the last call; waits for something to, but not longer than `wait_s` seconds."""
        if not self._ended:
            try:
                await asyncio.wait_for(self._news.wait(), wait_s)
            except TimeoutError:
                pass  # no news is an answer too: the process lives
            else:
                await asyncio.sleep(0)  # what ended in the same step comes along
        self._news.clear()
        ended, self._ended = tuple(self._ended), []
        return News(ended, self._backend.steps)

    def sync(self, parcel: Parcel, version: int) -> None:
        """Take over weights.

        Raises:
            BackendError: they do not fit; the old ones stay in use.
        """
        self._backend.sync_weights(parcel, version)

    async def close(self) -> None:
        """Let go of the engine."""
        await self._backend.close()

    async def _generate(self, request: GenerateRequest) -> None:
        result: Completion | RollError
        try:
            result = await self._backend.generate(request)
        except RollError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked must hear of it
            result = BackendError(f"request '{request.request_id}' failed: {type(error).__name__}: {error}")
        finally:
            del self._tasks[request.request_id]
        self._ended.append((request.request_id, result))
        self._news.set()
