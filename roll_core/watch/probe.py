"""Questions that might never be answered, asked so that nobody hangs on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Probe(Generic[T]):
    """Asks one question again and again, each time in a daemon thread; while one is unanswered none is added.

    Args:
        ask: the question; may block for ever.
        first: the answer until there is one.
        name: name of the thread.
    """

    def __init__(self, ask: Callable[[], T], first: T, name: str) -> None:
        self._ask = ask
        self._name = name
        self._thread: threading.Thread | None = None
        self.latest = first
        """The newest answer."""
        self.error: Exception | None = None
        """What the newest question failed with."""

    def __call__(self, within_s: float) -> bool:
        """Ask, and wait for the answer. Returns whether a fresh one came in time; it is `latest` then."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._thread.join(within_s)
        return not self._thread.is_alive() and self.error is None

    def _run(self) -> None:
        try:
            self.latest, self.error = self._ask(), None
        except Exception as error:  # noqa: BLE001 - kept for whoever asked; the watch outlives what it looks at
            self.error = error


def within(seconds: float, action: Callable[[], None], name: str) -> Exception | None:
    """Do something that might hang (a full pipe, a dead file system) in a thread that is left behind if it does.

    Returns:
        What it failed with, `TimeoutError` when it has not ended in time; None when it is done.
    """
    probe = Probe(action, None, name)
    if probe(seconds):
        return None
    return probe.error or TimeoutError(f"{name} did not end within {seconds:g} s")
