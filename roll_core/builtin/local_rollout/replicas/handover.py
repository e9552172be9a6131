"""One version of the weights for all replicas: handed to those that serve, and first of all to those that join."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from roll_core.builtin.local_rollout.replicas.member import Member
from roll_core.cluster import Reference
from roll_core.errors import BackendError


class Handover:
    """Safe from any thread.

    Args:
        live: the replicas that serve.
        condemn: has a replica replaced, for a reason.
        bound_s: how long one may take, in seconds.
    """

    def __init__(
        self, live: Callable[[], Sequence[Member]], condemn: Callable[[Member, str], None], bound_s: float
    ) -> None:
        self.version = 0
        """Of the weights that every replica has that serves."""
        self._live = live
        self._condemn = condemn
        self._bound_s = bound_s
        self._lock = threading.Lock()
        self._weights: Reference | None = None
        """The last parcel."""

    def admit(self, member: Member, let_serve: Callable[[], None]) -> None:
        """Give the weights of now to a fresh replica, then call `let_serve`; none is handed over in between."""
        with self._lock:
            if self._weights is not None:
                what = f"weights of version {self.version}"
                member.submit("sync", self._weights, self.version, bound_s=self._bound_s, what=what).result()
            let_serve()

    def publish(self, weights: Reference, version: int) -> bool:
        """Hand weights over to every replica that serves; one that does not take them while others do is replaced.

        Args:
            weights: a parcel.
            version: theirs.

        Returns:
            Whether any took them. None did where all were lost; the old ones then stay those of now.

        Raises:
            BackendError: they do not fit; the old ones stay in use everywhere.
        """
        with self._lock:
            what = f"weights of version {version}"
            calls = [
                (member, member.submit("sync", weights, version, bound_s=self._bound_s, what=what))
                for member in self._live()
            ]
            refusals: list[tuple[Member, BackendError]] = []
            losses: list[tuple[Member, Exception]] = []
            for member, call in calls:
                try:
                    call.result()
                    member.heard = time.monotonic()
                except BackendError as refusal:
                    refusals.append((member, refusal))
                except Exception as loss:  # noqa: BLE001 - whatever it is, the replica is to be replaced
                    losses.append((member, loss))
            is_taken = len(refusals) + len(losses) < len(calls)
            for member, error in [*losses, *(refusals if is_taken else ())]:
                self._condemn(member, f"it did not take over {what}: {error}")
            if refusals and not is_taken:
                raise refusals[0][1]
            if is_taken:
                self._release()
                self._weights, self.version = weights, version
            return is_taken

    def close(self) -> None:
        """Let go of the weights."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._weights is not None:
            self._weights.release()
            self._weights = None
