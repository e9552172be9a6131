"""One thread that gathers requests of any number of event loops into batches and judges them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from roll_core.types import Verdict

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Request:
    """A response that somebody waits for the verdict of."""

    messages: Sequence[Mapping[str, Any]]
    response: str
    future: Future[Verdict] = field(default_factory=Future)

    def answer(self, verdict: Verdict) -> None:
        """Hand the verdict over, unless the waiter has gone."""
        with suppress(InvalidStateError):
            self.future.set_result(verdict)


Judge = Callable[[Sequence[Request]], Sequence[Verdict]]


class Worker:
    """A daemon thread; it holds no reference to the verifier, so that the verifier can be collected.

    Args:
        judge: gives each request of a batch its verdict; called in the thread only.
        max_batch: most requests of one batch.
        max_wait_s: how long the first request of a batch waits for others, in seconds.
    """

    def __init__(self, judge: Judge, max_batch: int, max_wait_s: float) -> None:
        self._judge = judge
        self._max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="roll-reward-model", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request; after `close` it is answered at once with an error."""
        with self._lock:
            if not self._is_closed:
                self._requests.put(request)
                return
        request.answer(closed())

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish the batch under way, answer the others with an error, and end the thread. May be called again."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while batch := self._gather():
            live = [request for request in batch if request.future.set_running_or_notify_cancel()]
            if not live:
                continue
            for request, verdict in zip(live, self._verdicts(live), strict=True):
                request.answer(verdict)
        while True:
            try:
                left = self._requests.get_nowait()
            except queue.Empty:
                return
            if left is not None:
                left.answer(closed())

    def _gather(self) -> list[Request]:
        """The next batch; empty when the worker is to end."""
        first = self._requests.get()
        if first is None or self._is_closed:
            if first is not None:
                first.answer(closed())
            return []
        batch = [first]
        until = time.monotonic() + self._max_wait_s
        while len(batch) < self._max_batch:
            try:
                more = self._requests.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if more is None:
                self._requests.put(None)  # for the next round, which ends the thread
                break
            batch.append(more)
        return batch

    def _verdicts(self, live: Sequence[Request]) -> Sequence[Verdict]:
        """Judge a batch; when it fails, each request by itself, so that one does not take the others along."""
        try:
            return self._judge(live)
        except Exception as error:  # noqa: BLE001 - whatever the model raises is the machinery's failure, never a score
            if len(live) > 1:
                return [self._verdicts([request])[0] for request in live]
            _log.exception("the reward model failed")
            return [Verdict.error(f"{type(error).__name__}: {error}", detail="forward_failed")]


def closed() -> Verdict:
    """The verdict of requests that come after the end."""
    return Verdict.error("the reward model was closed", detail="closed")
