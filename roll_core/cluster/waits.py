"""Who waits for whom, since when: every wait for a worker is entered here while it lasts."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait."""

    who: str
    """Who waits: "driver", or a part of it."""
    whom: str
    """For whom: "actor[0..3]"."""
    what: str
    """For what."""
    limit_s: float
    """How long at most."""
    since: float = field(default_factory=time.time)
    """Unix time of its start."""

    def render(self) -> str:
        """One line for people."""
        clock = time.strftime("%H:%M:%S", time.localtime(self.since))
        passed = time.time() - self.since
        return f"{self.who} waits for {self.whom}: {self.what}, since {clock} ({passed:.1f} s of {self.limit_s:g} s)"


class Waits:
    """The waits of this process. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self._open: dict[int, Wait] = {}

    def enter(self, wait: Wait) -> int:
        """Begin a wait; returns the key to end it with."""
        key = next(self._keys)
        with self._lock:
            self._open[key] = wait
        return key

    def leave(self, key: int) -> None:
        """End a wait; once more does nothing."""
        with self._lock:
            self._open.pop(key, None)

    @contextmanager
    def during(self, wait: Wait) -> Iterator[None]:
        """A wait as long as a `with` block."""
        key = self.enter(wait)
        try:
            yield
        finally:
            self.leave(key)

    def open(self) -> list[Wait]:
        """What is being waited for now, the longest first."""
        with self._lock:
            return sorted(self._open.values(), key=lambda wait: wait.since)


WAITS = Waits()
"""Of this process. Other parts of the engine may enter their own waits, so that a hang shows them too."""
