"""How a run meets the outside: Ctrl-C as a request, and an event loop of its own.

The first Ctrl-C ends the run after the current step with a checkpoint, the second one at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


STUBBORN_S = 5.0
"""How long tasks that are left over at the end may take to let themselves be cancelled."""


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in an event loop of its own, also where one is running already (a notebook).

    As `asyncio.run`, but a task that ignores being cancelled (of a verifier that never answers) is left behind.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="roll-run") as thread:
        return thread.submit(_run, coroutine).result()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.new_event_loop()
    main = loop.create_task(coroutine)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_what_is_left(loop, main)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_what_is_left(loop: asyncio.AbstractEventLoop, main: asyncio.Task[Any]) -> None:
    """Cancel every task; the main one, which Ctrl-C may have left in the middle, is given all the time it closes in."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
    if not main.done():
        loop.run_until_complete(asyncio.wait({main}))
    if tasks := asyncio.all_tasks(loop):
        _, stubborn = loop.run_until_complete(asyncio.wait(tasks, timeout=STUBBORN_S))
        for task in stubborn:
            logger.warning("a task does not let itself be cancelled and is left behind: %r", task)


class StopRequest:
    """Whether the run was asked to stop after the current step."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Answer SIGINT and SIGTERM while the block runs; outside the main thread signals stay as they are."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        logger.warning(
            "%s: finishing the current step, then saving; once more stops at once", signal.Signals(number).name
        )
