"""One thread that watches the deadlines of many waits."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Deadlines:
    """Calls back when a deadline passes, unless it was taken back before. Safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._keys = itertools.count()
        self._heap: list[tuple[float, int]] = []
        self._actions: dict[int, Callable[[], None]] = {}
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, action: Callable[[], None]) -> int:
        """Call `action` (in a thread of its own) in so many seconds; returns the key to take it back with."""
        with self._changed:
            key = next(self._keys)
            self._actions[key] = action
            heapq.heappush(self._heap, (time.monotonic() + seconds, key))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="roll-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()
        return key

    def remove(self, key: int) -> None:
        """Take a deadline back; once more, or too late, does nothing."""
        with self._changed:
            self._actions.pop(key, None)

    def close(self) -> None:
        """Forget all deadlines and end the thread."""
        with self._changed:
            self._is_closed = True
            self._actions.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._heap and self._heap[0][1] not in self._actions:
                    heapq.heappop(self._heap)
                if self._is_closed:
                    return
                wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                action = self._actions.pop(heapq.heappop(self._heap)[1])
            threading.Thread(target=action, name="roll-deadline", daemon=True).start()
