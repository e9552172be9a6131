"""The replicas of a run: requests spread over them, moved when one dies, and one version of the weights for all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from roll_core.cluster import Router, Stuck, WorkerLost
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError
from roll_core.types import FinishReason
from roll_plugin_vllm.asks import Ask, Facts, Piece
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.link import Link
from roll_plugin_vllm.member import Member, ReplicaHealth
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.publisher import Publisher
from roll_plugin_vllm.update import Update

logger = logging.getLogger(__name__)

_PULL_S = 1.0
"""How long one request for news waits for some."""
_END_S = 10.0
"""How long a replica's thread may take to notice that it is over."""
_LOSSES = (WorkerLost, Stuck, TimeoutError, CancelledError)
"""Errors of a call that say something about the replica, not about the call; its pump deals with them."""
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


class Fleet:
    """Safe from any thread. Each replica has a thread here (its pump) that fetches tokens and replaces it when lost.

    Args:
        options: bounds and counts.
        on_gone: called with the name of a replica that has left or was given up.
    """

    def __init__(self, options: VllmOptions, on_gone: Callable[[str], None]) -> None:
        self.publisher = Publisher(
            self._live,
            self._condemn,
            transfer=options.transfer,
            span=options.span,
            bound_s=options.sync_timeout_s,
        )
        self.facts: Facts | None = None
        """What every replica can take; known when the first one has joined."""
        self._options = options
        self._on_gone = on_gone
        self._lock = threading.Condition()
        self._router = Router()
        self._members: dict[str, Member] = {}
        self._waiting: list[Flight] = []
        self._is_closed = False
        self._hopeless: Exception | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    def dispatch(self, flight: Flight) -> None:
        """Send a request to a replica, from the tokens it has; it waits while no replica serves."""
        member: Member | None = None
        with self._lock:
            reason = flight.ended()
            failure = self._failure()
            if reason is None and failure is None:
                member = self._assign(flight)
                ask = flight.next_ask() if member is not None else None
                if member is not None:
                    member.flights[flight.key] = flight
        if reason is not None:
            flight.end(reason)
        elif failure is not None:
            flight.fail(failure)
        elif member is not None and ask is not None:
            self._send(member, flight, ask)

    def abort(self, flight: Flight) -> None:
        """Let a request end with the tokens it has."""
        with self._lock:
            flight.is_aborted = True
            member = self._members.get(flight.replica)
            is_out = member is not None and flight.key in member.flights
            if not is_out and flight in self._waiting:
                self._waiting.remove(flight)
        if is_out and member is not None:
            self._call_abort(member, [flight.key])
        else:
            flight.end("abort")

    def drop(self, flight: Flight) -> None:
        """Forget a request that nobody waits for."""
        with self._lock:
            member = self._members.get(flight.replica)
            is_out = member is not None and member.flights.pop(flight.key, None) is not None
            if is_out:
                self._router.release(flight.replica, flight.cost)
            if flight in self._waiting:
                self._waiting.remove(flight)
        if is_out and member is not None:
            self._call_abort(member, [flight.key])

    def _assign(self, flight: Flight) -> Member | None:
        """The replica for a request; None, and the request waits, when there is none."""
        cost = flight.remaining
        name = self._router.choose(flight.request.group_key, cost)
        if name is None:
            self._waiting.append(flight)
            return None
        flight.replica, flight.cost = name, cost
        member = self._members[name]
        if not member.flights:
            member.heard = time.monotonic()
        return member

    def _send(self, member: Member, flight: Flight, ask: Ask) -> None:
        def answered(future: Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Exception) and not isinstance(error, _LOSSES):
                self._finish(member, Piece(ask.key, error=f"{type(error).__name__}: {error}"))

        try:
            what = f"request '{flight.request.request_id}'"
            future = member.link.call("submit", ask, timeout_s=self._options.answer_timeout_s, what=what)
        except Exception as error:  # noqa: BLE001 - a call that cannot be made at all: the replica is to be replaced
            self._condemn(member, f"it takes no calls: {error}")
        else:
            future.add_done_callback(answered)

    def _call_abort(self, member: Member, keys: Sequence[str]) -> None:
        try:
            member.link.call("abort", keys, timeout_s=self._options.answer_timeout_s, what="ending requests")
        except Exception as error:  # noqa: BLE001 - as in `_send`
            self._condemn(member, f"it takes no calls: {error}")

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _pump(self, member: Member) -> None:
        try:
            while not self._is_over(member):
                try:
                    self._raise_if_unfit(member)
                    pieces = member.link.call(
                        "pull", _PULL_S, timeout_s=self._options.answer_timeout_s, what=f"tokens of {member.name}"
                    ).result()
                except Exception as error:  # noqa: BLE001 - whatever it is, the replica is of no use like this
                    if self._is_over(member) or not self._recover(member, error):
                        return
                else:
                    self._take(member, pieces)
        except BaseException as error:
            self._give_up(BackendError(f"the thread that serves {member.name} failed: {type(error).__name__}: {error}"))
            raise

    def _is_over(self, member: Member) -> bool:
        return self._is_closed or member.is_leaving

    def _raise_if_unfit(self, member: Member) -> None:
        if member.condemned:
            raise BackendError(member.condemned)
        with self._lock:
            silence, waiting = member.silence_s(), len(member.flights)
        if not self.publisher.is_quiet and silence > self._options.answer_timeout_s:
            raise BackendError(f"{waiting} requests have waited for {silence:.0f} s without a token")

    def _take(self, member: Member, pieces: Iterable[Piece]) -> None:
        strays: list[str] = []
        for piece in pieces:
            with self._lock:
                flight = member.flights.get(piece.key)
                if flight is not None:
                    flight.take(piece)
                    member.heard, member.failures = time.monotonic(), 0
            if flight is None:
                if not (piece.finish_reason or piece.error):
                    strays.append(piece.key)
            elif piece.finish_reason or piece.error:
                self._finish(member, piece)
        if strays:
            self._call_abort(member, sorted(set(strays)))

    def _finish(self, member: Member, piece: Piece) -> None:
        with self._lock:
            flight = member.flights.pop(piece.key, None)
            if flight is not None:
                self._router.release(member.name, flight.cost)
        if flight is None:
            return
        reason = _REASONS.get(piece.finish_reason)
        if piece.error:
            flight.fail(BackendError(f"request '{flight.request.request_id}': {piece.error}"))
        elif reason is None or (reason == "abort" and not flight.is_aborted):
            told = f"the engine ended it by itself ('{piece.finish_reason}')"
            flight.fail(BackendError(f"request '{flight.request.request_id}': {told}"))
        else:
            flight.end(reason)

    # --- replicas -----------------------------------------------------------------------------------------------------

    def join(self, link: Link) -> None:
        """Take a started replica in: it gets the weights of now, then requests. Blocks for the former."""
        member = Member(link)
        with self._lock:
            self._members[member.name] = member
        try:
            self._bring_up(member)
        except BaseException:
            with self._lock:
                del self._members[member.name]
            raise
        member.pump = threading.Thread(target=self._pump, args=(member,), name=f"roll-pump-{member.name}", daemon=True)
        member.pump.start()

    def leave(self, name: str) -> None:
        """Let a replica go; its requests go on elsewhere, from their tokens.

        Raises:
            BackendError: there is none of that name, or no other one.
        """
        with self._lock:
            member = self._members.get(name)
            others = [one for one in self._members.values() if one.name != name]
            if member is None or not others:
                known = ", ".join(sorted(self._members))
                raise BackendError(f"replica '{name}' cannot leave; there are: {known}; one must stay")
            member.is_leaving = True
            del self._members[name]
        self._move_away(member)
        _end(member)
        self._on_gone(name)

    def health(self) -> list[ReplicaHealth]:
        """Every replica."""
        with self._lock:
            loads = self._router.loads
            return [
                ReplicaHealth(
                    member.name,
                    member.is_live,
                    len(member.flights),
                    loads.get(member.name, 0),
                    member.restarts,
                    member.silence_s(),
                )
                for member in self._members.values()
            ]

    def _condemn(self, member: Member, reason: str) -> None:
        """Have a replica replaced; no further request goes to it."""
        with self._lock:
            member.condemned = reason
            self._router.leave(member.name)

    def _move_away(self, member: Member) -> None:
        with self._lock:
            member.is_live = False
            self._router.leave(member.name)
            flights, member.flights = list(member.flights.values()), {}
        for flight in flights:
            self.dispatch(flight)

    def _recover(self, member: Member, error: Exception) -> bool:
        """Move the requests of a lost replica and put a fresh one in its place; whether that came about."""
        logger.warning("%s is lost; its %d requests keep their tokens: %s", member.name, len(member.flights), error)
        self._move_away(member)
        while not self._is_over(member):
            member.failures += 1
            if member.failures > self._options.max_restarts:
                self._retire(member, error)
                return False
            try:
                member.restarts += 1
                member.link.restart()
                self._bring_up(member)
            except Exception as next_error:  # noqa: BLE001 - counted, and told when there are too many
                if not self._is_over(member):
                    logger.warning("%s could not be replaced: %s", member.name, next_error)
                error = next_error
            else:
                return True
        return False

    def _bring_up(self, member: Member) -> None:
        """Give a fresh replica the weights of now, and let it serve."""
        waiting: list[Flight] = []

        def let_serve() -> None:
            with self._lock:
                member.is_live, member.condemned, member.heard = True, "", time.monotonic()
                self._router.join(member.name)
                waiting.extend(self._waiting)
                self._waiting.clear()
                self._lock.notify_all()

        bound, what = self._options.answer_timeout_s, f"facts of {member.name}"
        member.facts = self.facts = member.link.call("facts", timeout_s=bound, what=what).result()
        self.publisher.admit(member, let_serve)
        for flight in waiting:
            self.dispatch(flight)

    def _retire(self, member: Member, error: Exception) -> None:
        """Give a replica up that keeps failing; with the last one, everything that waits."""
        logger.error("%s has failed %d times in a row and is given up: %s", member.name, member.failures, error)
        with self._lock:
            self._members.pop(member.name, None)
            is_last = not self._members
        member.link.close()
        self._on_gone(member.name)
        if is_last:
            failure = WorkerLost(f"every replica has failed; the last one, {member.name}: {error}", "rollout")
            failure.__cause__ = error
            self._give_up(failure)

    def _give_up(self, failure: Exception) -> None:
        with self._lock:
            self._hopeless = failure
            waiting, self._waiting = self._waiting, []
            self._lock.notify_all()
        for flight in waiting:
            flight.fail(failure)

    def _failure(self) -> Exception | None:
        return BackendError("the rollout backend was closed") if self._is_closed else self._hopeless

    # --- weights and end ----------------------------------------------------------------------------------------------

    def publish(self, update: Update, source: WeightSource) -> None:
        """See `Publisher.publish`; waits for a replica that serves."""
        bound = self._options.start_timeout_s
        with self._lock:
            is_ready = self._lock.wait_for(
                lambda: self._failure() is not None or any(member.is_live for member in self._members.values()), bound
            )
            failure = self._failure()
        if failure is not None:
            raise failure
        if not is_ready:
            what = f"new weights of version {update.version}"
            raise Stuck(f"driver waits for a replica: {what}; none was ready after {bound:g} s", "rollout", what=what)
        self.publisher.publish(update, source)

    def _live(self) -> list[Member]:
        with self._lock:
            return [member for member in self._members.values() if member.is_live and not member.condemned]

    def close(self) -> None:
        """Fail what is running and end the replicas. Once more does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            members = list(self._members.values())
            flights = [*self._waiting, *(flight for member in members for flight in member.flights.values())]
            self._lock.notify_all()
        for flight in flights:
            flight.fail(BackendError("the rollout backend was closed"))
        with ThreadPoolExecutor(max(len(members), 1)) as pool:
            list(pool.map(_end, members))
        self.publisher.close()


def _end(member: Member) -> None:
    """End a replica's process, and the thread that watches it."""
    starts = member.restarts
    member.link.close()
    if member.pump is not None:
        member.pump.join(_END_S)
    if member.restarts != starts:  # a process was just being put in its place
        member.link.close()
