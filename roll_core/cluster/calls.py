"""Calls to one worker: numbered, answered once, remembered until the worker has replied."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import threading
import time
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from roll_core.cluster.errors import RemoteTracebackError, WorkerLost
from roll_core.cluster.link import Greeting, Link, Message
from roll_core.cluster.reference import Clock, Packed, Parts, Transfers, pack, size_of, unpack
from roll_core.cluster.servant import Order, Reply
from roll_core.cluster.spec import WorkerHealth
from roll_core.errors import ComponentError

_log = logging.getLogger(__name__)

_OVERDUE_S = 0.5
"""How long a worker that is overdue already may take to close."""


@dataclass(slots=True, eq=False)
class Call:
    """One call somebody waits for, or has given up waiting for."""

    index: int
    method: str
    what: str
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, unless it was answered or given up."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)

    @property
    def label(self) -> str:
        """What the worker does for it."""
        return f"'{self.method}' ({self.what})" if self.what else f"'{self.method}'"


class Post:
    """One place of a group: the link of the worker that holds it now, and the calls to that worker."""

    def __init__(self, role: str, index: int, link: Link, transfers: Transfers) -> None:
        self.role = role
        self.index = index
        self.link = link
        self._transfers = transfers
        self._lock = threading.Lock()
        self._count = 0
        self._open: dict[int, Call] = {}

    @property
    def name(self) -> str:
        """As messages name it: actor[1]."""
        return f"{self.role}[{self.index}]"

    @property
    def greeting(self) -> Greeting | None:
        """What the worker said of itself; None before it has."""
        ready = self.link.ready
        return ready.result() if ready.done() and ready.exception() is None else None

    @property
    def where(self) -> str:
        """The name with process id and machine, as far as they are known."""
        greeting = self.greeting
        if greeting is None:
            return self.name
        return f"{self.name} (pid {greeting.pid} on {greeting.node})"

    def issue(self, order: Order, method: str, packed: Packed, what: str, *, is_waited: bool) -> Call:
        """Send one order. The call's future never blocks anybody; cancelling it cancels the order in the worker."""
        call = Call(self.index, method, what)
        stage = f"{self.role}.{method}"
        with self._lock:  # numbers reach the link in their order
            number, self._count = self._count, self._count + 1
            self._open[number] = call
            answer = self.link.send(Message(number, order, method, packed, stage, is_waited))
        link = self.link
        call.future.add_done_callback(lambda future: link.cancel(number) if future.cancelled() else None)
        answer.add_done_callback(lambda future: self._answered(number, call, stage, future))
        return call

    def replace(self, link: Link) -> None:
        """Let a new worker hold the post; its calls are numbered from 0."""
        with self._lock:
            self.link, self._count, self._open = link, 0, {}

    def break_off(self, error: BaseException) -> None:
        """Let every unanswered call fail; the worker goes on with it, and its answer is passed over. Any thread."""
        with self._lock:
            calls = list(self._open.values())
        for call in calls:
            call.fail(error)

    def end(self, grace_s: float) -> None:
        """Let the object close and end the process.

        Args:
            grace_s: how long closing may take; a worker that owes an answer its caller gave up on gets less.
        """
        if self.link.ready.done() and self.link.is_alive():
            with self._lock:
                is_overdue = any(call.future.done() for call in self._open.values())
            grace_s = min(grace_s, _OVERDUE_S) if is_overdue else grace_s
            call = self.issue("stop", "close", pack(((), {})), "", is_waited=True)
            try:
                call.future.result(grace_s)
            except TimeoutError:
                _log.warning("%s did not close within %g s and is killed", self.where, grace_s)
            except WorkerLost as lost:  # whoever called it has been told
                _log.debug("%s", lost)
            except Exception as error:  # noqa: BLE001 - the process ends in any case
                _log.warning("%s did not close: %s", self.where, error)
        self.link.kill()

    @property
    def is_owing(self) -> bool:
        """Whether it is alive and has not answered a call."""
        return bool(self._open) and self.link.is_alive()

    def health(self) -> WorkerHealth:
        """The worker as the driver sees it."""
        with self._lock:
            calls = list(self._open.values())
        greeting = self.greeting
        oldest = min(calls, key=lambda call: call.since, default=None)
        return WorkerHealth(
            role=self.role,
            index=self.index,
            is_alive=self.link.is_alive(),
            pid=greeting.pid if greeting else 0,
            node=greeting.node if greeting else "",
            busy_s=None if oldest is None else time.monotonic() - oldest.since,
            busy_with="" if oldest is None else oldest.label,
            queued=len(calls),
            rss_bytes=self.link.rss(),
            devices=greeting.devices if greeting else (),
        )

    def _answered(self, number: int, call: Call, stage: str, answer: Future[Parts]) -> None:
        with self._lock:
            if self._open.get(number) is call:
                del self._open[number]
        error = answer.exception()
        if error is not None:
            call.fail(error)
            return
        clock, parts = Clock(), answer.result()
        try:
            reply: Reply = unpack(parts)
        except Exception as unreadable:  # noqa: BLE001 - handed to whoever called
            text = f"the result of {self.name} '{call.method}' cannot be read here: {unreadable}"
            call.fail(ComponentError(text))
            return
        self._transfers.received(stage, size_of(parts), clock())
        if reply[0] == "raised":
            call.fail(_error_of(reply[1], reply[2], reply[3], f"raised by {self.where} in {call.label}"))
            return
        try:
            call.future.set_result(reply[1])
        except InvalidStateError:
            _log.debug("%s answered %s after its caller had given up", self.name, call.label)


def _error_of(pickled: bytes | None, text: str, trace: str, note: str) -> BaseException:
    """The error a worker sent, or one that says what it was."""
    error: BaseException = ComponentError(text)
    if pickled is not None:
        try:
            error = pickle.loads(pickled)  # noqa: S301 - sent by a worker of this run
        except Exception:  # noqa: BLE001 - its class cannot be imported here; the text above says what it was
            _log.debug("the error '%s' cannot be read here", text)
    if isinstance(error, asyncio.CancelledError):
        error = ComponentError("the call was cancelled in the worker")
    error.__cause__ = RemoteTracebackError(f"\n{trace}")
    error.add_note(note)
    return error
