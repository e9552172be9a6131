"""One version of the weights for all replicas: updates as transactions, and what fresh replicas catch up with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_core.contracts import WeightSource
from roll_core.errors import BackendError
from roll_plugin_vllm.direct import DirectSender
from roll_plugin_vllm.member import Member
from roll_plugin_vllm.routes import SHARED_MEMORY, Transfer, choose
from roll_plugin_vllm.update import Update


class Publisher:
    """Safe from any thread; one update, catching up or change of sleep at a time.

    Args:
        live: the replicas that serve.
        condemn: has a replica replaced, for a reason.
        transfer: how whole weights travel.
        span: workers of one replica.
        bound_s: longest wait of each phase in seconds.
    """

    def __init__(
        self,
        live: Callable[[], Sequence[Member]],
        condemn: Callable[[Member, str], None],
        *,
        transfer: Transfer,
        span: int,
        bound_s: float,
    ) -> None:
        self.version = 0
        self._live = live
        self._condemn = condemn
        self._transfer: Transfer = transfer
        self._bound_s = bound_s
        self._direct = DirectSender(span, bound_s)
        self._lock = threading.Lock()
        self._current: dict[bool, Update] = {}
        """What every replica has: weights (False) and adapter (True), where they were ever updated."""
        self._is_syncing = False
        self._sleep_level = 0

    @property
    def is_quiet(self) -> bool:
        """Whether replicas make no tokens because they were told so."""
        return self._is_syncing or bool(self._sleep_level)

    def publish(self, update: Update, source: WeightSource) -> None:
        """Let every replica take an update over.

        A replica that is lost on the way, be it the only one, gets the new weights when it is replaced.

        Args:
            update: the weights.
            source: what they are a copy of, unchanged until this returns.

        Raises:
            BackendError: replicas refuse the weights; the old ones stay in use.
        """
        with self._lock:
            self._is_syncing = True
            try:
                lost = self._hand_over(update, source)
            except BaseException:
                update.close()
                raise
            finally:
                self._listen_anew()
                self._is_syncing = False
            replaced = self._current.pop(update.is_adapter, None)
            self._current[update.is_adapter] = update
            self.version = update.version
            self._condemn_all(lost, update)
        if replaced is not None:
            replaced.close()

    def admit(self, member: Member, let_serve: Callable[[], None]) -> None:
        """Give a fresh replica the weights of now, then call `let_serve` before they can change.

        Raises:
            Exception: whatever the replica raised.
        """
        with self._lock:
            for kind in sorted(self._current):
                errors = self._catch_up({member.name: member}, self._current[kind])
                if errors:
                    raise errors[member.name]
            if self._sleep_level:
                what = f"sleep of {member.name}"
                member.link.call("sleep", self._sleep_level, timeout_s=self._bound_s, what=what).result()
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
                members = {member.name: member for member in self._live()}
                for name, error in self._catch_up(members, self._current[False]).items():
                    self._condemn(members[name], f"it could not get its weights back: {error}")
            self._all_live("wake_up", what="taking device memory back")
            self._listen_anew()
            self._sleep_level = 0

    def close(self) -> None:
        """Give the updates' memory up."""
        self._direct.close()
        for update in self._current.values():
            update.close()

    def _hand_over(self, update: Update, source: WeightSource) -> dict[Member, Exception]:
        """Bring an update to every live replica; those that were lost over it.

        Raises:
            BackendError: it was refused.
        """
        members = {member.name: member for member in self._live()}
        facts = [member.facts for member in members.values() if member.facts is not None]
        is_direct = members and not update.is_adapter and not self._sleep_level
        route = choose(self._transfer, update.devices, [one.devices for one in facts]) if is_direct else SHARED_MEMORY
        if route != SHARED_MEMORY:
            return self._send_directly(route, update, source, list(members.values()))
        errors = self._in_two_phases(update, members)
        return {members[name]: error for name, error in errors.items()}

    def _in_two_phases(self, update: Update, members: Mapping[str, Member]) -> dict[str, Exception]:
        links = {name: member.link for name, member in members.items()}
        failed = update.prepare(links, self._bound_s)
        sound = {name: link for name, link in links.items() if name not in failed}
        if not _refused(failed):
            errors = update.commit(sound, self._bound_s)
            failed |= errors
            if len(errors) < len(sound) or not _refused(errors):
                return failed
        else:
            update.discard(sound, self._bound_s)
        self._condemn_all({members[name]: error for name, error in failed.items() if not _is_refusal(error)}, update)
        raise self._refusal(update, failed)

    def _send_directly(
        self, route: Transfer, update: Update, source: WeightSource, members: Sequence[Member]
    ) -> dict[Member, Exception]:
        try:
            self._direct.send(route, members, source, update)
        except Exception as error:  # whatever it is, the replicas hold neither old nor new weights
            lost = dict.fromkeys(members, error)
            if not _is_refusal(error):
                return lost
            self._condemn_all(lost, update)
            raise self._refusal(update, {"all replicas": error}) from error
        return {}

    def _catch_up(self, members: Mapping[str, Member], update: Update) -> dict[str, Exception]:
        links = {name: member.link for name, member in members.items()}
        failed = update.prepare(links, self._bound_s)
        sound = {name: link for name, link in links.items() if name not in failed}
        return failed | update.commit(sound, self._bound_s)

    def _condemn_all(self, lost: Mapping[Member, Exception], update: Update) -> None:
        for member, error in lost.items():
            self._condemn(member, f"it could not take over weights of version {update.version}: {error}")

    def _refusal(self, update: Update, errors: Mapping[str, Exception]) -> BackendError:
        told = "; ".join(f"{name}: {error}" for name, error in errors.items())
        failure = BackendError(
            f"weights of version {update.version} were not taken over, version {self.version} stays in use: {told}"
        )
        failure.__cause__ = next(iter(errors.values()))
        return failure

    def _all_live(self, method: str, *args: Any, what: str) -> None:
        calls = [member.link.call(method, *args, timeout_s=self._bound_s, what=what) for member in self._live()]
        for call in calls:
            call.result()

    def _listen_anew(self) -> None:
        """Silence counts from now."""
        for member in self._live():
            member.heard = time.monotonic()


def _is_refusal(error: Exception) -> bool:
    """Whether a replica says no, rather than being lost."""
    return isinstance(error, BackendError)


def _refused(errors: Mapping[str, Exception]) -> bool:
    return any(map(_is_refusal, errors.values()))
