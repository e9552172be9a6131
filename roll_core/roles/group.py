"""The hosts of one role, as the driver sees them: supervised, replaced when lost, their requests given to others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from roll_core.cluster import Executor, WorkerGroup, WorkerSpec
from roll_core.cluster.waits import WAITS, Wait
from roll_core.roles.desk import Desk
from roll_core.roles.errand import Answer, Place
from roll_core.roles.host import Reply
from roll_core.roles.roster import Member, Room, Roster

logger = logging.getLogger(__name__)

_PULL_S = 1.0
"""How long a host may have nothing to say before it says so."""
_END_S = 10.0
"""How long the hosts' threads may take to notice that it is over."""


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """Bounds of a role, in seconds but for one."""

    start_s: float = 240.0
    """A host's start, its handler included."""
    silence_s: float = 60.0
    """How long a host's event loop may stand still before the host counts as lost."""
    failures: int = 5
    """How often in a row a host may be lost, or not come up, without a request answered in between. When all hosts have
    reached it and none serves, the role is given up; while others serve, a host goes on trying."""
    longest_pause_s: float = 30.0
    """Between two attempts; the first come quickly."""


class RoleGroup:
    """Serves requests (bytes in, bytes out) by the hosts of a role. Safe from any thread.

    * A request goes to the least loaded host; what waits goes in batches as hosts answer.
    * A host that ends, or whose event loop stands still, is replaced, on Ray wherever there is room. What it had goes
      to another host, at most `retries` times: a request that ends every host it comes to fails, and does not go round.
    * Every request ends: with its answer, with what the handler raised, or with the loss that nobody could repair.

    Args:
        executor: starts the processes.
        spec: made by `host.host_spec`.
        rooms: how many requests of each lane a host may have at a time; further ones wait here.
        limits: bounds.
    """

    def __init__(
        self, executor: Executor, spec: WorkerSpec, *, rooms: Mapping[str, Room], limits: RoleLimits | None = None
    ) -> None:
        self.role = spec.role
        self._executor = executor
        self._spec = spec
        self._limits = limits or RoleLimits()
        self._members = (roster := Roster(spec.count, rooms)).members
        self._desk = Desk(spec.role, roster, self._limits.silence_s)
        self._group: WorkerGroup | None = None
        self._pumps: list[threading.Thread] = []

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Any:
        """Start the hosts. Blocks.

        Returns:
            The facts of one of them, which are those of all (`Handler.facts`).

        Raises:
            PlacementError, PluginError, WorkerLost, Stuck: as `Executor.start`.
            RoleClosed: it was closed meanwhile.
            Exception: what a handler's factory raised.
        """
        group = self._group = self._executor.start(self._spec, timeout_s=self._limits.start_s)
        try:
            facts = group.call("facts", timeout_s=self._limits.silence_s, what="facts of the hosts")[0]
            self._desk.check()
        except BaseException:
            group.close()
            raise
        self._desk.submit = group.submit
        for member in self._members:
            self._desk.take_in(member, is_fresh=False)
            name = f"roll-{self.role}-{member.index}"
            self._pumps.append(threading.Thread(target=self._pump, args=(group, member), name=name, daemon=True))
        for pump in self._pumps:
            pump.start()
        return facts

    def close(self) -> None:
        """Fail what is open and end the hosts. Takes seconds at most and raises nothing; once more does nothing."""
        is_missing = self._desk.close()
        group, self._group = self._group, None
        if group is None:
            return
        self._end(group)
        deadline = time.monotonic() + _END_S
        for pump in self._pumps:
            pump.join(max(deadline - time.monotonic(), 0.0))
        if is_missing:
            self._end(group)  # one may just have been put in its place

    def _end(self, group: WorkerGroup) -> None:
        try:
            group.close()
        except Exception:
            logger.exception("the hosts of role '%s' could not be ended in order", self.role)

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(
        self, request: bytes, *, lane: str, bound_s: float, what: str, retries: int = 1, place: Place | None = None
    ) -> Future[Answer]:
        """Send a request; cancelling the future gives it up.

        Args:
            request: what the handler is to serve.
            lane: one of `rooms`.
            bound_s: how long serving it may take (what a host had before it comes on top); a host that takes longer
                is replaced.
            what: what it is, in the words of a message.
            retries: how often it may go to another host when its own is lost; 0 where serving it twice does harm.
            place: the host it needs, because of what that remembers. It does not wait for room, and is never retried.

        Returns:
            The answer to come. Fails with `WorkerLost` (lost more than `retries` times, its place is gone, or no host
            is left), `Stuck` (over its bound), `RoleClosed`, or `ComponentError` (what the handler raised).

        Raises:
            WorkerLost: no host is left, and none could be started.
            RoleClosed: the role was closed.
        """
        return self._desk.ask(request, lane=lane, bound_s=bound_s, what=what, retries=retries, place=place)

    def check(self) -> None:
        """Raise what makes every further request impossible, if anything does.

        Raises:
            WorkerLost: no host is left, and none could be started.
            RoleClosed: the role was closed.
        """
        self._desk.check()

    def take_metrics(self) -> dict[str, float]:
        """What became of hosts and requests.

        `hosts_live`; since the start `hosts_lost`, `hosts_restarted`, `requests_retried`, `requests_lost`; since the
        last call `queue_max` (most requests that waited at a time) and `answered/<host>`.
        """
        return self._desk.take_metrics()

    def vitals(self) -> dict[str, int]:
        """The handlers' vitals, added up over all hosts and all their lives."""
        return self._desk.vitals()

    # --- a thread for each host ---------------------------------------------------------------------------------------

    def _pump(self, group: WorkerGroup, member: Member) -> None:
        try:
            while not self._desk.is_over:
                try:
                    self._desk.raise_if_unfit(member)
                    replies, vitals = self._pull(group, member)
                except Exception as error:  # noqa: BLE001 - whatever it is, the host is of no use like this
                    if self._desk.is_over or not self._replace(group, member, error):
                        return
                else:
                    self._desk.receive(member, replies, vitals)
        except BaseException as error:
            self._desk.abandon(error)
            raise

    def _pull(self, group: WorkerGroup, member: Member) -> tuple[list[Reply], dict[str, int]]:
        """What a host has answered meanwhile; it says at least every `_PULL_S` seconds that it lives."""
        bound_s = _PULL_S + self._limits.silence_s
        what = f"{len(member.errands)} requests"
        pulling = group.submit(member.index, "pull", _PULL_S, timeout_s=bound_s, what=what)
        pulled: tuple[list[Reply], dict[str, int]] = pulling.result(bound_s + self._limits.silence_s)
        return pulled

    def _replace(self, group: WorkerGroup, member: Member, error: Exception) -> bool:
        """Let others do what a lost host had, and put a fresh one in its place; whether that came about."""
        name = f"{self.role}[{member.index}]"
        logger.warning("%s is lost, with %d requests: %s", name, len(member.errands), error)
        self._desk.take_off(member, error)
        while not self._desk.is_over:
            if self._desk.is_hopeless(self._limits.failures):
                self._desk.abandon(error)
            if self._pause(name, member.failures):
                break
            try:
                group.restart(member.index)
            except Exception as next_error:  # noqa: BLE001 - counted, and told when there are too many
                error, member.failures = next_error, member.failures + 1
                if not self._desk.is_over:
                    logger.warning("%s could not be replaced: %s", name, error)
            else:
                self._desk.take_in(member)
                logger.info("%s serves again", name)
                return True
        return False

    def _pause(self, name: str, failures: int) -> bool:
        """Wait before another attempt, the longer the more have failed; whether it is over meanwhile."""
        if failures < 2:
            return self._desk.is_over
        pause_s = min(2.0 ** (failures - 2), self._limits.longest_pause_s)
        what = f"another attempt to start it; {self._desk.waiting} requests wait"
        with WAITS.during(Wait("driver", name, what, pause_s)):
            return self._desk.wait_until_over(pause_s)
