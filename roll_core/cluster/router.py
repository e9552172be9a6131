"""Which replica a request goes to: the least loaded one, except that a group stays together where loads allow."""

from __future__ import annotations

from collections import OrderedDict


class Router:
    """Knows the replicas that serve and how much each of them has to do. Not safe from several threads.

    Args:
        remembered: groups whose replica is known; the least recently used are forgotten.
        slack: how many times its own cost a request's home may be busier than the least loaded replica. A group of
            that size goes to one replica, which computes its prompt once; a larger one is spread. None keeps every
            group together.
    """

    def __init__(self, remembered: int = 4096, slack: int | None = None) -> None:
        self._remembered = remembered
        self._slack = slack
        self._loads: dict[str, int] = {}
        self._homes: OrderedDict[str, str] = OrderedDict()

    @property
    def loads(self) -> dict[str, int]:
        """Outstanding cost of each serving replica."""
        return dict(self._loads)

    def join(self, name: str) -> None:
        """A replica serves from now on."""
        self._loads[name] = 0

    def leave(self, name: str) -> None:
        """A replica serves no more; its groups find another home with their next request."""
        self._loads.pop(name, None)

    def choose(self, group_key: str, cost: int) -> str | None:
        """The replica for a request, whose cost is added to its load; None when no replica serves.

        Args:
            group_key: requests of one key go to one replica while that is not much busier than others; empty for a
                request on its own.
            cost: tokens the request may still make.
        """
        if not self._loads:
            return None
        idlest = min(self._loads, key=self._loads.__getitem__)
        home = self._homes.get(group_key, idlest)
        if home not in self._loads or self._is_too_busy(home, idlest, cost):
            home = idlest
        if group_key:
            self._homes[group_key] = home
            self._homes.move_to_end(group_key)
            if len(self._homes) > self._remembered:
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

    def _is_too_busy(self, home: str, idlest: str, cost: int) -> bool:
        return self._slack is not None and self._loads[home] >= self._loads[idlest] + self._slack * cost
