"""Which replica a request goes to: the least loaded one, except that a group stays together where loads allow."""

from __future__ import annotations

from collections import OrderedDict

_REMEMBERED = 4096
"""Groups whose replica is known; the least recently used are forgotten."""
_SLACK = 8
"""How many times its own cost a request's home may be busier than the least loaded replica. A group of that size goes
to one replica, which computes its prompt once; a larger one is spread."""


class Router:
    """Knows the replicas that serve and what each of them has to do. Not safe from several threads."""

    def __init__(self) -> None:
        self._loads: dict[str, int] = {}
        self._homes: OrderedDict[str, str] = OrderedDict()

    def join(self, name: str) -> None:
        """A replica serves from now on."""
        self._loads[name] = 0

    def leave(self, name: str) -> None:
        """A replica serves no more."""
        self._loads.pop(name, None)

    def choose(self, group_key: str, cost: int) -> str | None:
        """The replica for a request, whose cost is added to its load; None when no replica serves.

        Args:
            group_key: requests of one key go to one replica while that is not much busier than others; empty for a
                request on its own.
            cost: tokens the request may make.
        """
        if not self._loads:
            return None
        idlest = min(self._loads, key=self._loads.__getitem__)
        home = self._homes.get(group_key, idlest)
        if home not in self._loads or self._loads[home] >= self._loads[idlest] + _SLACK * cost:
            home = idlest
        if group_key:
            self._homes[group_key] = home
            self._homes.move_to_end(group_key)
            if len(self._homes) > _REMEMBERED:
                self._homes.popitem(last=False)
        self._loads[home] += cost
        return home

    def release(self, name: str, cost: int) -> None:
        """A request has left a replica."""
        if name in self._loads:
            self._loads[name] = max(self._loads[name] - cost, 0)

    def load(self, name: str) -> int:
        """What a replica has to do; 0 for one that does not serve."""
        return self._loads.get(name, 0)
