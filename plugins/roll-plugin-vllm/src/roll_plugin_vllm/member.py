"""A replica as the fleet knows it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from roll_plugin_vllm.asks import Facts
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.link import Link


@dataclass(slots=True, eq=False)
class Member:
    """A replica, the requests that are with it, and how it is. Changed under the fleet's lock."""

    link: Link
    facts: Facts | None = None
    """Known while it serves."""
    flights: dict[str, Flight] = field(default_factory=dict)
    """By the key of their present attempt."""
    is_live: bool = False
    is_leaving: bool = False
    condemned: str = ""
    """Why it is to be replaced although it answers."""
    failures: int = 0
    """In a row, without a token in between."""
    restarts: int = 0
    heard: float = field(default_factory=time.monotonic)
    """When it last brought tokens, or had nothing to do."""
    pump: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.link.name

    @property
    def life(self) -> tuple[str, int]:
        """Names the process: a replaced one is another."""
        return self.name, self.restarts

    def silence_s(self) -> float:
        """Seconds for which requests have waited here without a single token."""
        return time.monotonic() - self.heard if self.flights else 0.0


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """One replica, for people."""

    name: str
    is_live: bool
    requests: int
    load: int
    """Tokens its requests may still make."""
    restarts: int
    silence_s: float
    """Seconds without a token while requests waited."""
