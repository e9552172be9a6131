"""Where the requests of a role are kept: given to hosts, taken off those that are lost, answered once."""

from __future__ import annotations

import copy
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from roll_core.cluster import Stuck, WorkerLost
from roll_core.errors import ComponentError, RollError
from roll_core.roles.errand import Answer, Errand, Place
from roll_core.roles.host import Reply
from roll_core.roles.roster import Member, Roster

logger = logging.getLogger(__name__)


class RoleClosed(RollError, RuntimeError):  # noqa: N818 - an event, as the losses of a role are
    """The role was closed before the request was answered."""


class Submit(Protocol):
    """Calls a method of a host; see `WorkerGroup.submit`."""

    def __call__(self, index: int, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        """The answer to come."""
        ...


class Desk:
    """Safe from any thread. Has none of its own: `RoleGroup` tells it what becomes of the hosts.

    Args:
        role: its name.
        roster: hosts and queues.
        answer_s: how long a host may take to accept a message.
    """

    def __init__(self, role: str, roster: Roster, answer_s: float) -> None:
        self.role = role
        self.submit: Submit | None = None
        """Reaches the hosts, once they have been started."""
        self._roster = roster
        self._answer_s = answer_s
        self._lock = threading.Condition()
        self._numbers = itertools.count()
        self._failure: WorkerLost | None = None
        self._is_closed = False
        self._counts: Counter[str] = Counter()
        self._past: Counter[str] = Counter()

    # --- for whoever asks ---------------------------------------------------------------------------------------------

    def ask(
        self, request: bytes, *, lane: str, bound_s: float, what: str, retries: int, place: Place | None
    ) -> Future[Answer]:
        """See `RoleGroup.ask`."""
        errand = Errand(next(self._numbers), request, lane, bound_s, what, retries, place)
        self.check()
        errand.when_given_up(self._give_up)
        self._dispatch(errand)
        return errand.future

    def check(self) -> None:
        """See `RoleGroup.check`."""
        with self._lock:
            end = self._end()
        if end is not None:
            raise end

    def take_metrics(self) -> dict[str, float]:
        """See `RoleGroup.take_metrics`."""
        with self._lock:
            metrics = {"hosts_live": float(len(self._roster.live))}
            names = ("hosts_lost", "hosts_restarted", "requests_retried", "requests_lost")
            metrics |= {name: float(self._counts[name]) for name in names}
            metrics["queue_max"] = float(self._roster.longest_queue)
            self._roster.longest_queue = self._roster.waiting
            for member in self._roster.members:
                metrics[f"answered/{member.index}"] = float(member.answered)
                member.answered = 0
            return metrics

    def vitals(self) -> dict[str, int]:
        """See `RoleGroup.vitals`."""
        with self._lock:
            counts = Counter(self._past)
            for member in self._roster.members:
                counts.update(member.vitals)
            return dict(counts)

    # --- for whoever keeps the hosts ----------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether no request will be served any more."""
        return self._is_closed or self._failure is not None

    @property
    def waiting(self) -> int:
        """Requests that no host has."""
        with self._lock:
            return self._roster.waiting

    def wait_until_over(self, seconds: float) -> bool:
        """Wait so long at most; whether it is over then."""
        with self._lock:
            return self._lock.wait_for(lambda: self.is_over, seconds)

    def receive(self, member: Member, replies: Sequence[Reply], vitals: Mapping[str, int]) -> None:
        """Hand out what a host has answered, and give it more."""
        ended: list[tuple[Errand, Reply]] = []
        with self._lock:
            life, place = member.life, member.place
            member.vitals = dict(vitals)
            for reply in replies:
                errand = self._roster.finish(member, reply[0])
                if errand is not None:
                    ended.append((errand, reply))
            member.answered += len(ended)
            member.failures = 0 if ended else member.failures
            batch = self._roster.fill(member)
        self._send(member, life, batch)
        for errand, (_, value, error) in ended:
            if value is None:
                errand.fail(ComponentError(f"{errand.what}: {error}"))
            else:
                errand.succeed(Answer(value, place))

    def raise_if_unfit(self, member: Member) -> None:
        """Fail the requests that a host has had for too long.

        Raises:
            WorkerLost: the host is to be replaced, for that reason or because it takes no messages.
        """
        with self._lock:
            overdue = [errand for errand in member.errands.values() if errand.is_overdue]
            for errand in overdue:
                self._roster.finish(member, errand.number)
            if overdue and not member.condemned:
                member.condemned = f"{overdue[0].what}: no answer within its bound ({overdue[0].bound_s:g} s)"
            condemned, name = member.condemned, f"{self.role}[{member.index}]"
        for errand in overdue:
            passed_s = time.monotonic() - errand.sent
            text = f"driver waits for {name}: {errand.what}; no answer for {passed_s:.1f} s, which is over its bound"
            errand.fail(Stuck(text, self.role, [member.index], errand.what))
        if condemned:
            raise WorkerLost(f"{name} is of no use: {condemned}", self.role, member.index)

    def take_off(self, member: Member, error: Exception) -> None:
        """Count the loss of a host and give what it had to others."""
        with member.sending, self._lock:
            member.life += 1
            member.failures += 1
            member.condemned = ""
            errands = self._roster.clear(member)
            self._past.update(member.vitals)
            member.vitals = {}
            self._counts["hosts_lost"] += 1
            for errand in errands:
                errand.losses += 1
                self._counts["requests_lost" if errand.is_spent else "requests_retried"] += 1
        for errand in errands:
            if errand.is_spent:
                times = f" ({errand.losses} times)" if errand.losses > 1 else ""
                lost = WorkerLost(f"{errand.what}: its host was lost{times}: {error}", self.role, member.index)
                lost.__cause__ = error
                errand.fail(lost)
            else:
                self._dispatch(errand)

    def take_in(self, member: Member, *, is_fresh: bool = True) -> None:
        """Let a started host serve."""
        with self._lock:
            if self.is_over:
                return
            member.is_live = True
            self._counts["hosts_restarted"] += is_fresh
            life, batch = member.life, self._roster.fill(member)
        self._send(member, life, batch)

    def is_hopeless(self, failures: int) -> bool:
        """Whether no host serves, and all have failed so often in a row."""
        with self._lock:
            return not self._roster.live and all(member.failures >= failures for member in self._roster.members)

    def abandon(self, error: BaseException) -> None:
        """Give the role up, and with it everything that is open."""
        text = f"no host of role '{self.role}' is left, and none could be put in its place: {error}"
        failure = WorkerLost(text, self.role)
        failure.__cause__ = error
        with self._lock:
            self._failure = failure
            errands = self._roster.clear_all()
            self._counts["requests_lost"] += len(errands)
            self._lock.notify_all()
        logger.error("%s", failure)
        for errand in errands:
            errand.fail(copy.copy(failure))

    def close(self) -> bool:
        """Fail what is open; whether a host was missing, which somebody may be starting just now."""
        with self._lock:
            self._is_closed = True
            is_missing = len(self._roster.live) < len(self._roster.members)
            errands = self._roster.clear_all()
            self._lock.notify_all()
        for errand in errands:
            errand.fail(self._closed())
        return is_missing

    # --- giving out ---------------------------------------------------------------------------------------------------

    def _end(self) -> RollError | None:
        """The error of a request that comes when it is over."""
        if self._is_closed:
            return self._closed()
        return None if self._failure is None else copy.copy(self._failure)

    def _closed(self) -> RoleClosed:
        return RoleClosed(f"role '{self.role}' was closed")

    def _dispatch(self, errand: Errand) -> None:
        """Give a request to a host, or let it wait."""
        member, life = None, 0
        with self._lock:
            error = self._end()
            if error is None and errand.place is not None and not self._roster.is_there(errand.place):
                name = f"{self.role}[{errand.place.index}]"
                error = WorkerLost(f"{errand.what}: {name} was replaced", self.role, errand.place.index)
            if error is None:
                member = self._roster.give(errand)
                life = member.life if member is not None else 0
        if error is not None:
            errand.fail(error)
        elif member is not None:
            self._send(member, life, [errand])

    def _send(self, member: Member, life: int, errands: Sequence[Errand]) -> None:
        """Send requests that a host was given in one of its lives; they have gone elsewhere if that is over."""
        if errands:
            batch = [(errand.number, errand.request) for errand in errands]
            what = f"{len(batch)} requests" if len(batch) > 1 else errands[0].what
            self._tell(member, life, "take", batch, what=what)

    def _give_up(self, errand: Errand) -> None:
        """Whoever asked has gone."""
        with self._lock:
            self._roster.forget(errand)
            owner = next((member for member in self._roster.members if errand.number in member.errands), None)
            life = owner.life if owner is not None else 0
        if owner is not None:
            self._tell(owner, life, "drop", errand.number, what=f"giving up {errand.what}")

    def _tell(self, member: Member, life: int, method: str, *args: Any, what: str) -> None:
        with member.sending:
            if member.life != life or self.submit is None:
                return
            try:
                future = self.submit(member.index, method, *args, timeout_s=self._answer_s, what=what)
            except Exception as error:  # noqa: BLE001 - whatever keeps calls from being made, a fresh host may not have
                self._condemn(member, life, f"it takes no calls: {type(error).__name__}: {error}")
            else:
                future.add_done_callback(self._condemner(member, life, method))

    def _condemner(self, member: Member, life: int, method: str) -> Callable[[Future[Any]], None]:
        def answered(future: Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._condemn(member, life, f"'{method}' failed: {error}")

        return answered

    def _condemn(self, member: Member, life: int, reason: str) -> None:
        """Have a host replaced; whoever keeps it does it."""
        with self._lock:
            if member.life == life:
                member.condemned = member.condemned or reason
