"""Replicas and requests as the driver knows them."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roll_core.cluster import WorkerGroup
from roll_core.types import Completion, FinishReason, GenerateRequest

_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class Flight:
    """A request until its result is there. When its replica is lost it begins anew, and draws the same tokens."""

    request: GenerateRequest
    cost: int
    """New tokens it may make."""
    future: Future[Completion] = field(default_factory=Future)
    key: str = ""
    """Names the present attempt, so that answers of earlier ones are recognised by theirs."""
    replica: str = ""
    losses: int = 0
    """How many replicas were lost while they had it."""
    is_aborted: bool = False

    def attempt(self) -> GenerateRequest:
        """Begin another attempt; what to send."""
        self.key = f"{self.request.request_id}#{next(_numbers)}"
        return replace(self.request, request_id=self.key)

    def end(self, completion: Completion) -> None:
        """Hand the result out, unless nobody waits any more."""
        with suppress(InvalidStateError):
            self.future.set_result(replace(completion, request_id=self.request.request_id))

    def end_empty(self, reason: FinishReason) -> None:
        """Hand out a result without tokens."""
        empty = np.empty(0, dtype=np.int32)
        columns = {"keep_counts": empty, "keep_ids": empty} if self.request.sampling.is_truncated else {}
        self.end(Completion(self.request.request_id, empty, np.empty(0, np.float32), (), reason, columns))

    def fail(self, error: Exception) -> None:
        """Hand an error out, unless nobody waits any more."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Member:
    """A replica, and the requests that are with it. Changed under the fleet's lock."""

    group: WorkerGroup
    flights: dict[str, Flight] = field(default_factory=dict)
    """By the key of their present attempt."""
    is_live: bool = False
    is_leaving: bool = False
    condemned: str = ""
    """Why it is to be replaced although it answers."""
    failures: int = 0
    """In a row, without a request that ended in between."""
    life: int = 0
    """Counts the processes it has had."""
    steps: int = 0
    heard: float = field(default_factory=time.monotonic)
    """When its engine last moved on, or had nothing to do."""
    keeper: threading.Thread | None = None

    @property
    def name(self) -> str:
        """Its role."""
        return self.group.role

    def submit(self, method: str, *args: Any, bound_s: float, what: str) -> Future[Any]:
        """Call a method of the replica and do not wait."""
        return self.group.submit(0, method, *args, timeout_s=bound_s, what=what)

    def silence_s(self) -> float:
        """Seconds for which requests have been here without a step of the engine."""
        return time.monotonic() - self.heard if self.flights else 0.0
