"""The replicas of a run: requests spread over them, moved when one dies, and one version of the weights for all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from roll_core.cluster import Stuck, WorkerLost
from roll_core.errors import BackendError
from roll_core.types import FinishReason
from roll_plugin_vllm.asks import Ask, Piece
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.links import Link
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.publisher import Publisher
from roll_plugin_vllm.router import Router
from roll_plugin_vllm.seat import ReplicaHealth, Seat
from roll_plugin_vllm.update import Update

logger = logging.getLogger(__name__)

_PULL_S = 1.0
"""How long one request for news waits for some."""
_LOSSES = (WorkerLost, Stuck, TimeoutError, CancelledError)
"""Errors of a call that say something about the replica, not about the call; its pump deals with them."""
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


class Fleet:
    """Safe from any thread. Each replica has a thread here (its pump) that fetches tokens and replaces it when lost.

    Args:
        options: bounds and counts.
    """

    def __init__(self, options: VllmOptions) -> None:
        self.publisher = Publisher(self._live, self._condemn, options.sync_timeout_s)
        self._options = options
        self._lock = threading.Condition()
        self._router = Router()
        self._seats: dict[str, Seat] = {}
        self._waiting: list[Flight] = []
        self._is_closed = False
        self._hopeless: Exception | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    def dispatch(self, flight: Flight) -> None:
        """Send a request to a replica, from the tokens it has; it waits while no replica serves."""
        seat: Seat | None = None
        with self._lock:
            reason = flight.ended()
            failure = self._failure()
            if reason is None and failure is None:
                seat = self._assign(flight)
                ask = flight.next_ask() if seat is not None else None
                if seat is not None:
                    seat.flights[flight.key] = flight
        if reason is not None:
            flight.end(reason)
        elif failure is not None:
            flight.fail(failure)
        elif seat is not None and ask is not None:
            self._send(seat, flight, ask)

    def abort(self, flight: Flight) -> None:
        """Let a request end with the tokens it has."""
        with self._lock:
            flight.is_aborted = True
            seat = self._seats.get(flight.replica)
            is_out = seat is not None and flight.key in seat.flights
            if not is_out and flight in self._waiting:
                self._waiting.remove(flight)
        if is_out and seat is not None:
            self._call_abort(seat, [flight.key])
        else:
            flight.end("abort")

    def drop(self, flight: Flight) -> None:
        """Forget a request that nobody waits for."""
        with self._lock:
            seat = self._seats.get(flight.replica)
            is_out = seat is not None and seat.flights.pop(flight.key, None) is not None
            if is_out:
                self._router.release(flight.replica, flight.cost)
            if flight in self._waiting:
                self._waiting.remove(flight)
        if is_out and seat is not None:
            self._call_abort(seat, [flight.key])

    def _assign(self, flight: Flight) -> Seat | None:
        """The replica for a request; None, and the request waits, when there is none."""
        cost = flight.remaining
        name = self._router.choose(flight.request.group_key, cost)
        if name is None:
            self._waiting.append(flight)
            return None
        flight.replica, flight.cost = name, cost
        seat = self._seats[name]
        if not seat.flights:
            seat.heard = time.monotonic()
        return seat

    def _send(self, seat: Seat, flight: Flight, ask: Ask) -> None:
        def answered(future: Future[Any]) -> None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Exception) and not isinstance(error, _LOSSES):
                self._finish(seat, Piece(ask.key, error=f"{type(error).__name__}: {error}"))

        try:
            what = f"request '{flight.request.request_id}'"
            future = seat.link.call("submit", ask, timeout_s=self._options.answer_timeout_s, what=what)
        except Exception as error:  # noqa: BLE001 - a call that cannot be made at all: the replica is to be replaced
            self._condemn(seat, f"it takes no calls: {error}")
        else:
            future.add_done_callback(answered)

    def _call_abort(self, seat: Seat, keys: Sequence[str]) -> None:
        try:
            seat.link.call("abort", keys, timeout_s=self._options.answer_timeout_s, what="ending requests")
        except Exception as error:  # noqa: BLE001 - as in `_send`
            self._condemn(seat, f"it takes no calls: {error}")

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _pump(self, seat: Seat) -> None:
        try:
            while not self._is_over(seat):
                try:
                    self._raise_if_unfit(seat)
                    pieces = seat.link.call(
                        "pull", _PULL_S, timeout_s=self._options.answer_timeout_s, what=f"tokens of {seat.name}"
                    ).result()
                except Exception as error:  # noqa: BLE001 - whatever it is, the replica is of no use like this
                    if self._is_over(seat) or not self._recover(seat, error):
                        return
                else:
                    self._take(seat, pieces)
        except BaseException as error:
            self._give_up(BackendError(f"the thread that serves {seat.name} failed: {type(error).__name__}: {error}"))
            raise

    def _is_over(self, seat: Seat) -> bool:
        return self._is_closed or seat.is_leaving

    def _raise_if_unfit(self, seat: Seat) -> None:
        if seat.condemned:
            raise BackendError(seat.condemned)
        with self._lock:
            silence, waiting = seat.silence_s(), len(seat.flights)
        if not self.publisher.is_quiet and silence > self._options.answer_timeout_s:
            raise BackendError(f"{waiting} requests have waited for {silence:.0f} s without a token")

    def _take(self, seat: Seat, pieces: Iterable[Piece]) -> None:
        strays: list[str] = []
        for piece in pieces:
            with self._lock:
                flight = seat.flights.get(piece.key)
                if flight is not None:
                    flight.take(piece)
                    seat.heard, seat.failures = time.monotonic(), 0
            if flight is None:
                if not (piece.finish_reason or piece.error):
                    strays.append(piece.key)
            elif piece.finish_reason or piece.error:
                self._finish(seat, piece)
        if strays:
            self._call_abort(seat, sorted(set(strays)))

    def _finish(self, seat: Seat, piece: Piece) -> None:
        with self._lock:
            flight = seat.flights.pop(piece.key, None)
            if flight is not None:
                self._router.release(seat.name, flight.cost)
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
        seat = Seat(link)
        with self._lock:
            self._seats[seat.name] = seat
        try:
            self._bring_up(seat)
        except BaseException:
            with self._lock:
                del self._seats[seat.name]
            raise
        seat.pump = threading.Thread(target=self._pump, args=(seat,), name=f"roll-pump-{seat.name}", daemon=True)
        seat.pump.start()

    def leave(self, name: str) -> None:
        """Let a replica go; its requests go on elsewhere, from their tokens.

        Raises:
            BackendError: there is none of that name, or no other one.
        """
        with self._lock:
            seat = self._seats.get(name)
            others = [one for one in self._seats.values() if one.name != name]
            if seat is None or not others:
                known = ", ".join(sorted(self._seats))
                raise BackendError(f"replica '{name}' cannot leave; there are: {known}; one must stay")
            seat.is_leaving = True
            del self._seats[name]
        self._move_away(seat)
        seat.link.close()
        if seat.pump is not None:
            seat.pump.join(2 * _PULL_S)

    def health(self) -> list[ReplicaHealth]:
        """Every replica."""
        with self._lock:
            loads = self._router.loads
            return [
                ReplicaHealth(
                    seat.name,
                    seat.is_live,
                    len(seat.flights),
                    loads.get(seat.name, 0),
                    seat.restarts,
                    seat.silence_s(),
                )
                for seat in self._seats.values()
            ]

    def _condemn(self, seat: Seat, reason: str) -> None:
        """Have a replica replaced; no further request goes to it."""
        with self._lock:
            seat.condemned = reason
            self._router.leave(seat.name)

    def _move_away(self, seat: Seat) -> None:
        with self._lock:
            seat.is_live = False
            self._router.leave(seat.name)
            flights, seat.flights = list(seat.flights.values()), {}
        for flight in flights:
            self.dispatch(flight)

    def _recover(self, seat: Seat, error: Exception) -> bool:
        """Move the requests of a lost replica and put a fresh one in its place; whether that came about."""
        logger.warning("%s is lost, its %d requests go on elsewhere: %s", seat.name, len(seat.flights), error)
        self._move_away(seat)
        while not self._is_over(seat):
            seat.failures += 1
            if seat.failures > self._options.max_restarts:
                self._retire(seat, error)
                return False
            try:
                seat.link.restart()
                self._bring_up(seat)
            except Exception as next_error:  # noqa: BLE001 - counted, and told when there are too many
                logger.warning("%s could not be replaced: %s", seat.name, next_error)
                error = next_error
            else:
                seat.restarts += 1
                return True
        return False

    def _bring_up(self, seat: Seat) -> None:
        """Give a fresh replica the weights of now, and let it serve."""
        waiting: list[Flight] = []

        def let_serve() -> None:
            with self._lock:
                seat.is_live, seat.condemned, seat.heard = True, "", time.monotonic()
                self._router.join(seat.name)
                waiting.extend(self._waiting)
                self._waiting.clear()
                self._lock.notify_all()

        self.publisher.admit(seat, let_serve)
        for flight in waiting:
            self.dispatch(flight)

    def _retire(self, seat: Seat, error: Exception) -> None:
        """Give a replica up that keeps failing; with the last one, everything that waits."""
        logger.error("%s has failed %d times in a row and is given up: %s", seat.name, seat.failures, error)
        with self._lock:
            self._seats.pop(seat.name, None)
            is_last = not self._seats
        if is_last:
            failure = BackendError(f"every replica has failed; the last one, {seat.name}: {error}")
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

    def publish(self, update: Update) -> None:
        """See `Publisher.publish`; waits for a replica that serves."""
        bound = self._options.start_timeout_s
        with self._lock:
            is_ready = self._lock.wait_for(
                lambda: self._failure() is not None or any(seat.is_live for seat in self._seats.values()), bound
            )
            failure = self._failure()
        if failure is not None:
            raise failure
        if not is_ready:
            raise BackendError(f"no replica was ready for new weights within {bound:g} s")
        self.publisher.publish(update)

    def _live(self) -> list[Seat]:
        with self._lock:
            return [seat for seat in self._seats.values() if seat.is_live and not seat.condemned]

    def close(self) -> None:
        """Fail what is running and end the replicas. Once more does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            seats = list(self._seats.values())
            flights = [*self._waiting, *(flight for seat in seats for flight in seat.flights.values())]
            self._lock.notify_all()
        for flight in flights:
            flight.fail(BackendError("the rollout backend was closed"))
        with ThreadPoolExecutor(max(len(seats), 1)) as pool:
            list(pool.map(lambda seat: seat.link.close(), seats))
        self.publisher.close()
