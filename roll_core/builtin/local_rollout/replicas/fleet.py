"""The replicas of a run: requests are spread over them, and begin anew elsewhere when one is lost."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from roll_core.builtin.local_rollout.replicas.handover import Handover
from roll_core.builtin.local_rollout.replicas.member import Flight, Member
from roll_core.builtin.local_rollout.replicas.worker import Facts, News
from roll_core.cluster import Reference, Router, Stuck, WorkerGroup, WorkerLost
from roll_core.cluster.waits import WAITS, Wait
from roll_core.errors import BackendError
from roll_core.types import Completion

logger = logging.getLogger(__name__)

_PULL_S = 1.0
"""How long a replica may have nothing to say before it says so."""
_STACKS_S = 5.0
"""How long it may when it is asked for its stacks meanwhile."""
_END_S = 10.0
"""How long a replica's thread may take to notice that it is over."""
_SLACK = 8
"""How many requests of its size a group's home may be busier than others before the group is spread."""
_MOST_LOSSES = 8
"""How many replicas may be lost under one request before it counts as the cause."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may be waited for."""

    start_s: float
    """Seconds for the start of a replica."""
    silence_s: float
    """Seconds without an answer, or without a step while there are requests, after which a replica counts as lost."""
    restarts: int
    """Replacements of a replica in a row, without a request that ended in between, after which it is given up."""


class Fleet:
    """Safe from any thread. Each replica has a thread here (its keeper) that fetches results and replaces it when lost.

    Args:
        bounds: what may be waited for.
        on_gone: called with the name of a replica that has ended for good.
    """

    def __init__(self, bounds: Bounds, on_gone: Callable[[str], None]) -> None:
        self.weights = Handover(self._live, self._condemn, bounds.silence_s)
        self.facts: Facts | None = None
        """Of every replica; known when the first one has joined."""
        self._bounds = bounds
        self._on_gone = on_gone
        self._lock = threading.Condition()
        self._router = Router(slack=_SLACK)
        self._members: dict[str, Member] = {}
        self._waiting: list[Flight] = []
        self._is_closed = False
        self._hopeless: Exception | None = None
        self._lost = 0
        self._redone = 0

    # --- requests -----------------------------------------------------------------------------------------------------

    def dispatch(self, flight: Flight) -> None:
        """Send a request to a replica; it waits while none serves."""
        with self._lock:
            failure = self._failure()
            if failure is not None:
                flight.fail(failure)
            elif flight.is_aborted:
                flight.end_empty("abort")
            elif not flight.future.done():
                name = self._router.choose(flight.request.group_key, flight.cost)
                if name is None:
                    self._waiting.append(flight)
                else:
                    self._send(self._members[name], flight)

    def abort(self, flight: Flight) -> None:
        """Let a request end with the tokens it has."""
        with self._lock:
            flight.is_aborted = True
            member = self._members.get(flight.replica)
            if member is not None and flight.key in member.flights:
                self._tell(member, "abort", flight.key)
            elif flight in self._waiting:
                self._waiting.remove(flight)
                flight.end_empty("abort")

    def drop(self, flight: Flight) -> None:
        """Forget a request that nobody waits for."""
        with self._lock:
            member = self._members.get(flight.replica)
            if member is not None and member.flights.pop(flight.key, None) is not None:
                self._router.release(member.name, flight.cost)
                self._tell(member, "drop", flight.key)
            elif flight in self._waiting:
                self._waiting.remove(flight)

    def _send(self, member: Member, flight: Flight) -> None:
        """Under the lock, so that what is told of a request later comes later."""
        if not member.flights:
            member.heard = time.monotonic()
        ask = flight.attempt()
        flight.replica = member.name
        member.flights[flight.key] = flight
        self._tell(member, "take", ask)

    def _tell(self, member: Member, method: str, message: Any) -> None:
        life = member.life

        def answered(future: Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None and member.life == life:
                member.condemned = member.condemned or f"'{method}' failed: {error}"

        try:
            future = member.submit(method, message, bound_s=self._bounds.silence_s, what=f"a request of {member.name}")
        except Exception as error:  # noqa: BLE001 - a call that cannot be made at all: the replica is to be replaced
            member.condemned = member.condemned or f"it takes no calls: {error}"
        else:
            future.add_done_callback(answered)

    # --- a thread for each replica ------------------------------------------------------------------------------------

    def _keep(self, member: Member) -> None:
        try:
            while not self._is_over(member):
                try:
                    news = self._pull(member)
                except Exception as error:  # noqa: BLE001 - whatever it is, the replica is of no use like this
                    if self._is_over(member) or not self._replace(member, error):
                        return
                else:
                    self._take(member, news)
        except BaseException as error:
            self._give_up(BackendError(f"the thread that keeps {member.name} failed: {type(error).__name__}: {error}"))
            raise
        finally:
            member.group.close()  # a process may just have been put in its place
            self._on_gone(member.name)

    def _is_over(self, member: Member) -> bool:
        return self._is_closed or member.is_leaving or self._hopeless is not None

    def _pull(self, member: Member) -> News:
        """What a replica says.

        Raises:
            BackendError: it was condemned.
            Stuck: it has requests, and its engine does not move on.
            WorkerLost: it has ended.
        """
        bound_s = self._bounds.silence_s
        silence_s = member.silence_s()
        wait_s = _PULL_S if silence_s < bound_s else _STACKS_S
        pulling = member.submit("pull", wait_s, bound_s=bound_s + wait_s, what=f"news of {member.name}")
        stacks = {} if silence_s < bound_s else member.group.stacks()  # of those that owe an answer
        news: News = pulling.result()
        if member.condemned:
            raise BackendError(member.condemned)
        if silence_s >= bound_s and news.steps == member.steps and not news.ended:
            where = "\n".join(stacks.values())
            text = f"{member.name} has {len(member.flights)} requests and made no step for {silence_s:.0f} s:\n{where}"
            raise Stuck(text, member.name, [0], "a step of the engine")
        return news

    def _take(self, member: Member, news: News) -> None:
        with self._lock:
            if news.steps != member.steps or not member.flights:
                member.steps, member.heard = news.steps, time.monotonic()
            for key, result in news.ended:
                flight = member.flights.pop(key, None)
                if flight is None:
                    continue
                self._router.release(member.name, flight.cost)
                if isinstance(result, Completion):
                    member.failures = 0
                    flight.end(result)
                else:
                    flight.fail(result)

    # --- joining, leaving, replacing ----------------------------------------------------------------------------------

    def join(self, group: WorkerGroup) -> None:
        """Take a started replica in: it gets the weights of now, then requests. Blocks for the former.

        Raises:
            BackendError: it can do something else than those that serve, or does not take the weights.
            Stuck, WorkerLost: of the replica.
        """
        member = Member(group)
        with self._lock:
            self._members[member.name] = member
        try:
            self._bring_up(member)
        except BaseException:
            with self._lock:
                del self._members[member.name]
            raise
        member.keeper = threading.Thread(target=self._keep, args=(member,), name=f"roll-{member.name}", daemon=True)
        member.keeper.start()

    def leave(self, name: str) -> None:
        """Let a replica go; its requests begin anew elsewhere. Blocks until its process has ended."""
        with self._lock:
            member = self._members.pop(name, None)
            if member is None:  # given up meanwhile
                return
            member.is_leaving = True
        for flight in self._take_away(member):
            self.dispatch(flight)
        _end([member])

    def loads(self) -> dict[str, int]:
        """Tokens that the requests of each replica may still make; -1 for a replica that does not serve."""
        with self._lock:
            return {name: self._router.load(name) if one.is_live else -1 for name, one in self._members.items()}

    def metrics(self) -> dict[str, float]:
        """How the replicas are, and what has become of them since the start."""
        with self._lock:
            live, lost, redone = len(self._live()), self._lost, self._redone
        return {
            "rollout/replicas_live": float(live),
            "rollout/replicas_lost": float(lost),
            "rollout/requests_redone": float(redone),
        }

    def _take_away(self, member: Member) -> list[Flight]:
        with self._lock:
            member.is_live = False
            member.life += 1
            self._router.leave(member.name)
            flights, member.flights = list(member.flights.values()), {}
        return flights

    def _replace(self, member: Member, error: Exception) -> bool:
        """Have the requests of a lost replica begun anew elsewhere and put a fresh one in its place; whether it did."""
        flights = self._take_away(member)
        logger.warning("%s is lost; its %d requests begin anew: %s", member.name, len(flights), error)
        with self._lock:
            self._lost += 1
            self._redone += len(flights)
        for flight in flights:
            flight.losses += 1
            if flight.losses < _MOST_LOSSES:
                self.dispatch(flight)
            else:
                name = flight.request.request_id
                text = f"request '{name}' was with {flight.losses} replicas that were lost; the last: {error}"
                flight.fail(WorkerLost(text, member.name, 0))
        while not self._is_over(member):
            member.failures += 1
            if member.failures > self._bounds.restarts:
                self._retire(member, error)
                return False
            try:
                member.group.restart(0)
                self._bring_up(member)
            except Exception as next_error:  # noqa: BLE001 - counted, and told when there are too many
                error = next_error
                if not self._is_over(member):
                    logger.warning("%s could not be replaced: %s", member.name, error)
            else:
                logger.info("%s serves again", member.name)
                return True
        return False

    def _bring_up(self, member: Member) -> None:
        """Give a fresh replica the weights of now, and let it serve."""
        waiting: list[Flight] = []

        def let_serve() -> None:
            with self._lock:
                member.is_live, member.condemned = True, ""
                member.steps, member.heard = -1, time.monotonic()
                self._router.join(member.name)
                waiting.extend(self._waiting)
                self._waiting.clear()
                self._lock.notify_all()

        bound_s = self._bounds.silence_s
        facts: Facts = member.submit("facts", bound_s=bound_s, what=f"facts of {member.name}").result()
        with self._lock:
            self.facts = self.facts or facts
        if facts != self.facts:
            raise BackendError(f"{member.name} differs from the other replicas: {facts}, not {self.facts}")
        self.weights.admit(member, let_serve)
        for flight in waiting:
            self.dispatch(flight)

    def _retire(self, member: Member, error: Exception) -> None:
        """Give a replica up that keeps failing; with the last one, everything that waits."""
        logger.error("%s was lost %d times in a row and is given up: %s", member.name, member.failures, error)
        with self._lock:
            self._members.pop(member.name, None)
            is_last = not self._members
        if is_last:
            failure = WorkerLost(f"every rollout replica is lost; the last one, {member.name}: {error}", member.name, 0)
            failure.__cause__ = error
            self._give_up(failure)

    def _give_up(self, failure: Exception) -> None:
        with self._lock:
            self._hopeless = self._hopeless or failure
            flights, self._waiting = self._waiting, []
            for member in self._members.values():
                flights += member.flights.values()
                member.flights = {}
            self._lock.notify_all()
        for flight in flights:
            flight.fail(copy.copy(failure))

    def _failure(self) -> Exception | None:
        """What makes every request impossible, if anything; whoever gets it may add notes of his own."""
        return BackendError("the rollout backend was closed") if self._is_closed else copy.copy(self._hopeless)

    # --- weights and end ----------------------------------------------------------------------------------------------

    def publish(self, weights: Reference, version: int) -> None:
        """Hand weights over to every replica that serves; those that join later get them first.

        Raises:
            BackendError: they do not fit; the old ones stay in use everywhere.
            WorkerLost: every replica is lost.
            Stuck: none came back in time.
        """
        self._wait_for_one(f"weights of version {version}")
        while not self.weights.publish(weights, version):
            self._wait_for_one(f"weights of version {version}")

    def _live(self) -> list[Member]:
        with self._lock:
            return [member for member in self._members.values() if member.is_live]

    def _condemn(self, member: Member, reason: str) -> None:
        """Have a replica replaced; it gets no further request, and its keeper takes away those it has."""
        with self._lock:
            member.condemned = member.condemned or reason
            member.is_live = False
            self._router.leave(member.name)

    def _wait_for_one(self, what: str) -> None:
        """Wait until a replica serves."""
        bound_s = self._bounds.start_s
        with WAITS.during(Wait("driver", "a rollout replica", what, bound_s)), self._lock:
            is_there = self._lock.wait_for(lambda: self._failure() is not None or bool(self._live()), bound_s)
            failure = self._failure()
        if failure is not None:
            raise failure
        if not is_there:
            raise Stuck(f"driver waits for a rollout replica: {what}; none was ready after {bound_s:g} s", "rollout")

    def close(self) -> None:
        """Fail what is running and end the replicas; once more does nothing."""
        with self._lock:
            self._is_closed = True
            members, self._members = list(self._members.values()), {}
            flights, self._waiting = self._waiting, []
            for member in members:
                flights += member.flights.values()
            self._lock.notify_all()
        for flight in flights:
            flight.fail(BackendError("the rollout backend was closed"))
        _end(members)
        self.weights.close()


def _end(members: Iterable[Member]) -> None:
    """End processes and their keepers, all at once."""
    ending: Sequence[Member] = list(members)
    with ThreadPoolExecutor(max(len(ending), 1)) as pool:
        for closing in [pool.submit(member.group.close) for member in ending]:
            closing.result()
    for member in ending:
        if member.keeper is not None and member.keeper is not threading.current_thread():
            member.keeper.join(_END_S)
