"""One version of the weights for all replicas: updates as transactions, and what fresh replicas catch up with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from roll_core.errors import BackendError
from roll_plugin_vllm.seat import Seat
from roll_plugin_vllm.update import Update


class Publisher:
    """Safe from any thread; one update, catching up or change of sleep at a time.

    Args:
        live: the replicas that serve.
        condemn: has a replica replaced, for a reason.
        bound_s: longest wait of each phase in seconds.
    """

    def __init__(
        self, live: Callable[[], Sequence[Seat]], condemn: Callable[[Seat, str], None], bound_s: float
    ) -> None:
        self.version = 0
        self._live = live
        self._condemn = condemn
        self._bound_s = bound_s
        self._lock = threading.Lock()
        self._current: dict[bool, Update] = {}
        """What every replica has: weights (False) and adapter (True), where they were ever updated."""
        self._is_syncing = False
        self._sleep_level = 0

    @property
    def is_quiet(self) -> bool:
        """Whether replicas make no tokens because they were told so."""
        return self._is_syncing or bool(self._sleep_level)

    def publish(self, update: Update) -> None:
        """Let every replica take an update over: prepared everywhere, then committed.

        A replica that is lost on the way gets the new weights when it is replaced.

        Raises:
            BackendError: replicas refuse the weights, or none serves; the old ones stay in use.
        """
        with self._lock:
            self._is_syncing = True
            try:
                self._transact(update)
            except BaseException:
                update.close()
                raise
            finally:
                self._listen_anew()
                self._is_syncing = False
            replaced = self._current.pop(update.is_adapter, None)
            self._current[update.is_adapter] = update
            self.version = update.version
        if replaced is not None:
            replaced.close()

    def admit(self, seat: Seat, let_serve: Callable[[], None]) -> None:
        """Give a fresh replica the weights of now, then call `let_serve` before they can change.

        Raises:
            Exception: whatever the replica raised.
        """
        with self._lock:
            for kind in sorted(self._current):
                for phase in (self._current[kind].prepare, self._current[kind].commit):
                    errors = phase([seat.link], self._bound_s)
                    if errors:
                        raise errors[seat.name]
            if self._sleep_level:
                what = f"sleep of {seat.name}"
                seat.link.call("sleep", self._sleep_level, timeout_s=self._bound_s, what=what).result()
            let_serve()

    def sleep(self, level: int) -> None:
        """Let every replica give device memory up.

        Raises:
            BackendError: replicas cannot sleep, or level 2 would lose weights that nobody has.
        """
        with self._lock:
            if level == 2 and False not in self._current:
                raise BackendError("level 2 forgets the weights; sync them once before, so that they can be restored")
            self._all_live("sleep", level, what="giving device memory up")
            self._sleep_level = level

    def wake_up(self) -> None:
        """Take the memory back, with the weights of now."""
        with self._lock:
            if self._sleep_level == 2:
                seats = {seat.name: seat for seat in self._live()}
                for phase in (self._current[False].prepare, self._current[False].commit):
                    for name, error in phase([seat.link for seat in seats.values()], self._bound_s).items():
                        self._condemn(seats.pop(name), f"it could not get its weights back: {error}")
            self._all_live("wake_up", what="taking device memory back")
            self._listen_anew()
            self._sleep_level = 0

    def close(self) -> None:
        """Give the updates' memory up."""
        for update in self._current.values():
            update.close()

    def _transact(self, update: Update) -> None:
        seats = {seat.name: seat for seat in self._live()}
        failed = update.prepare([seat.link for seat in seats.values()], self._bound_s)
        sound = {name: seat for name, seat in seats.items() if name not in failed}
        if not sound or any(isinstance(error, BackendError) for error in failed.values()):
            update.discard([seat.link for seat in sound.values()], self._bound_s)
            raise self._refusal(update, failed)
        errors = update.commit([seat.link for seat in sound.values()], self._bound_s)
        if len(errors) == len(sound):
            raise self._refusal(update, errors)
        for name, error in {**failed, **errors}.items():
            self._condemn(seats[name], f"it could not take over weights of version {update.version}: {error}")

    def _refusal(self, update: Update, errors: dict[str, Exception]) -> BackendError:
        told = "; ".join(f"{name}: {error}" for name, error in errors.items()) or "no replica serves"
        failure = BackendError(
            f"weights of version {update.version} were not taken over, version {self.version} stays in use: {told}"
        )
        failure.__cause__ = next(iter(errors.values()), None)
        return failure

    def _all_live(self, method: str, *args: Any, what: str) -> None:
        calls = [seat.link.call(method, *args, timeout_s=self._bound_s, what=what) for seat in self._live()]
        for call in calls:
            call.result()

    def _listen_anew(self) -> None:
        """Silence counts from now."""
        for seat in self._live():
            seat.heard = time.monotonic()
