"""One request on its way: from whoever asked, through one host or several, to its answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    """One life of one host. What it remembers of earlier requests is there, and nowhere else."""

    index: int
    """Number of the host."""
    life: int
    """How often it had been replaced."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host answered."""

    value: bytes
    place: Place
    """Where it was made; a request that needs what is remembered there asks for that place."""


@dataclass(slots=True, eq=False)
class Errand:
    """A request somebody waits for."""

    number: int
    request: bytes
    lane: str
    bound_s: float
    """Longest time that serving it may take, in seconds."""
    what: str
    retries: int
    place: Place | None = None
    future: Future[Answer] = field(default_factory=Future)
    losses: int = 0
    """How many hosts have ended while they had it."""
    sent: float = 0.0
    """Monotonic time at which it went to its host."""
    due: float = 0.0
    """Monotonic time at which the host has had it for too long, what was there before it included."""

    @property
    def is_overdue(self) -> bool:
        """Whether its host has had it for too long."""
        return time.monotonic() > self.due

    @property
    def is_suspect(self) -> bool:
        """Whether a host has ended with it: perhaps because of it."""
        return self.losses > 0

    @property
    def is_spent(self) -> bool:
        """Whether it may go to no other host."""
        return self.place is not None or self.losses > self.retries

    def succeed(self, answer: Answer) -> None:
        """Answer, unless whoever asked has gone."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, unless whoever asked has gone."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)

    def when_given_up(self, action: Callable[[Errand], None]) -> None:
        """Have `action` called when whoever asked cancels it."""
        self.future.add_done_callback(lambda future: action(self) if future.cancelled() else None)
