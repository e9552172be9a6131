"""Whether an event loop moves, seen from another thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable


class Pulse:
    """Puts a callback into the loop and looks whether it has come through.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: float | None = None

    def lag_s(self, loop: asyncio.AbstractEventLoop | None) -> float:
        """Seconds for which the loop has let nothing through; 0 when it has answered since the last look."""
        if loop is not self._loop:
            self._loop, self._asked = loop, None
        if loop is None or loop.is_closed():
            return 0.0
        if self._asked is None:
            self._asked = self._clock()
            with contextlib.suppress(RuntimeError):  # closed at this moment
                loop.call_soon_threadsafe(self._answer, self._asked)
            return 0.0
        return self._clock() - self._asked

    def _answer(self, asked: float) -> None:
        if self._asked == asked:
            self._asked = None
