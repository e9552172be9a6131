"""Who is at what: the hosts of a role, what each of them has, and what waits for one. No threads, no processes."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from roll_core.roles.errand import Errand, Place

_LONG_S = 0.1
"""A request that is with a host for longer waits there rather than here."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many requests of a lane a host may have at a time.

    A host that runs dry while something waits is given more ahead, up to `most`; one that takes long gets less again,
    down to `least`. So messages are few where requests are quick, and none waits behind slow ones while others are
    idle.
    """

    at_once: int
    """How many it serves at a time; the others wait there."""
    least: int
    most: int

    @classmethod
    def of(cls, count: int) -> Self:
        """As many as it serves at a time, and no more."""
        return cls(count, count, count)


@dataclass(slots=True, eq=False)
class Member:
    """One host."""

    index: int
    life: int = 0
    is_live: bool = False
    errands: dict[int, Errand] = field(default_factory=dict)
    """What it has, by number."""
    loads: Counter[str] = field(default_factory=Counter)
    """How much of it by lane."""
    rooms: dict[str, int] = field(default_factory=dict)
    """How much it may have by lane, for now."""
    failures: int = 0
    """Losses and failed starts since it last answered a request."""
    condemned: str = ""
    """Why it has to be replaced, although its process lives."""
    vitals: dict[str, int] = field(default_factory=dict)
    """Of this life."""
    given: int = 0
    """Requests it was ever given; of hosts with equal loads, the one that had fewest is next."""
    answered: int = 0
    """Requests, since somebody last asked."""
    sending: threading.Lock = field(default_factory=threading.Lock)
    """Held while something is sent to it, so that nothing meant for one life reaches the next."""

    @property
    def place(self) -> Place:
        """Its life of now."""
        return Place(self.index, self.life)

    @property
    def suspects(self) -> int:
        """How many of its requests a host has ended with before."""
        return sum(errand.is_suspect for errand in self.errands.values())


class Roster:
    """Gives requests to the least loaded host with room, in the order they came. Its owner locks.

    Requests whose host was lost go first, and at the beginning one to a host: should one of them end that host too, it
    takes no others with it that fail for their second loss. With each that comes back a host may have one more.

    Args:
        hosts: how many.
        rooms: of each lane. A lane is for requests that are served alike.
    """

    def __init__(self, hosts: int, rooms: Mapping[str, Room]) -> None:
        least = {lane: room.least for lane, room in rooms.items()}
        self.members = [Member(index, rooms=dict(least)) for index in range(hosts)]
        self._rooms = dict(rooms)
        self.longest_queue = 0
        """Most requests that have waited at a time, since somebody last asked."""
        self._queues: dict[str, deque[Errand]] = {lane: deque() for lane in rooms}
        self._suspects: deque[Errand] = deque()
        self._suspects_at_once = 1

    @property
    def waiting(self) -> int:
        """Requests that no host has."""
        return len(self._suspects) + sum(map(len, self._queues.values()))

    @property
    def live(self) -> list[Member]:
        """Hosts that serve."""
        return [member for member in self.members if member.is_live]

    def give(self, errand: Errand) -> Member | None:
        """The host for a request, which has it from now on; None, and it waits, while none has room.

        The place of one that asked for it must be there.
        """
        if errand.place is not None:
            member: Member | None = self.members[errand.place.index]
        else:
            fits = [member for member in self.live if self._fits(errand, member)]
            member = min(fits, key=lambda member: (member.loads.total(), member.given), default=None)
        if member is None:
            (self._suspects if errand.is_suspect else self._queues[errand.lane]).append(errand)
            self.longest_queue = max(self.longest_queue, self.waiting)
        else:
            self._assign(errand, member)
        return member

    def fill(self, member: Member) -> list[Errand]:
        """What waits and goes to a host now."""
        if not member.is_live:
            return []
        for lane, queue in self._queues.items():
            if queue and not member.loads[lane]:
                member.rooms[lane] = min(2 * member.rooms[lane], self._rooms[lane].most)
        chosen: list[Errand] = []
        for queue in (self._suspects, *self._queues.values()):
            while queue and (queue[0].future.done() or self._fits(queue[0], member)):
                errand = queue.popleft()
                if not errand.future.done():  # whoever asked may have gone
                    self._assign(errand, member)
                    chosen.append(errand)
        return chosen

    def finish(self, member: Member, number: int) -> Errand | None:
        """Take an answered request off its host; None when it is not there any more."""
        errand = member.errands.pop(number, None)
        if errand is not None:
            member.loads[errand.lane] -= 1
            self._suspects_at_once += errand.is_suspect
            if time.monotonic() - errand.sent > _LONG_S:
                member.rooms[errand.lane] = max(member.rooms[errand.lane] - 1, self._rooms[errand.lane].least)
        return errand

    def clear(self, member: Member) -> list[Errand]:
        """Take everything off a host that was lost."""
        member.is_live = False
        self._suspects_at_once = 1
        errands = list(member.errands.values())
        member.errands.clear()
        member.loads.clear()
        return errands

    def forget(self, errand: Errand) -> None:
        """Take a request out of the queue it waits in, if it does."""
        for queue in (self._suspects, self._queues[errand.lane]):
            if errand in queue:
                queue.remove(errand)

    def clear_all(self) -> list[Errand]:
        """Take out everything, and let no host serve."""
        errands = [errand for queue in (self._suspects, *self._queues.values()) for errand in queue]
        for queue in (self._suspects, *self._queues.values()):
            queue.clear()
        for member in self.members:
            errands += self.clear(member)
        return errands

    def is_there(self, place: Place) -> bool:
        """Whether that life of that host lasts."""
        return self.members[place.index].is_live and self.members[place.index].life == place.life

    def _fits(self, errand: Errand, member: Member) -> bool:
        if member.loads[errand.lane] >= member.rooms[errand.lane]:
            return False
        return not errand.is_suspect or member.suspects < self._suspects_at_once

    def _assign(self, errand: Errand, member: Member) -> None:
        ahead, room = member.loads[errand.lane], self._rooms[errand.lane]
        errand.sent = time.monotonic()
        errand.due = errand.sent + errand.bound_s * (1 + ahead // room.at_once)
        member.given += 1
        member.errands[errand.number] = errand
        member.loads[errand.lane] += 1
