"""Which domain is next: earliest deadline first among those that are owed a prompt."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.errors import ConfigError

_TOLERANCE = 1e-9
"""Credits closer than this count as equal: decimal weights are not exact in binary."""


class Scheduler:
    """Keeps a credit per domain: what its share has earned so far, minus what it was given. Credits sum to 0.

    Each draw earns every domain its share. A domain may be given a prompt while its credit is positive, and must be
    before its credit reaches 1; the one whose deadline comes first is taken. For fixed shares this keeps all credits
    within (-1, 1): the windows are those of a pfair schedule, which on one processor earliest deadline first meets.
    (Taking the largest credit instead, as smooth weighted round robin does, does not: with weights
    10, 10, 3, 1, 1, 10, 5, 3 a credit reaches 1.05.)
    Ties go to the larger credit, then to the smaller hash of (seed, draw, domain), so that no domain always comes
    first in a small batch.

    Args:
        domains: all domains.
        seed: for ties.

    Source: Baruah et al. 1996, "Proportionate progress", Algorithmica 15(6).
    """

    def __init__(self, domains: Sequence[str], *, seed: int) -> None:
        self._seed = seed
        self._credits = dict.fromkeys(domains, 0.0)
        self._draws = 0

    def draw(self, shares: Mapping[str, float]) -> str:
        """Name the next domain.

        Args:
            shares: positive shares of the domains that may be drawn; sum to 1.
        """
        credits_ = self._credits
        # what domains outside `shares` were owed or owe passes to those inside, so that credits sum to 0 again
        rest = -math.fsum(credits_[name] for name in shares)
        for name in credits_:
            credits_[name] = credits_[name] + shares[name] * (1.0 + rest) if name in shares else 0.0
        owed = [name for name in shares if credits_[name] > _TOLERANCE]
        chosen = min(owed, key=lambda name: self._urgency(name, shares[name]))
        credits_[chosen] -= 1.0
        self._draws += 1
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Credits and number of draws (JSON)."""
        return {"credits": dict(self._credits), "draws": self._draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved state; domains that it does not know start with no credit.

        Raises:
            ConfigError: the state knows a domain that is not there.
        """
        saved = state["credits"]
        unknown = [name for name in saved if name not in self._credits]
        if unknown:
            raise ConfigError(
                f"the saved state of mixer 'ratio' has domains {', '.join(unknown)}, which this run lacks; "
                "a resumed run may add domains, not remove them"
            )
        self._credits = {name: float(saved.get(name, 0.0)) for name in self._credits}
        self._draws = int(state["draws"])

    def _urgency(self, name: str, share: float) -> tuple[int, float, bytes]:
        """Draws left until the credit reaches 1, then more credit, then the hash."""
        credit = self._credits[name]
        deadline = math.ceil((1.0 - credit) / share - _TOLERANCE)
        key = f"{self._seed}/{self._draws}/{name}".encode()
        return deadline, -round(credit / _TOLERANCE), hashlib.blake2b(key, digest_size=8).digest()
