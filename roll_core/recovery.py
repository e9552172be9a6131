"""Going on after a loss: which failures a run survives, and how often.

A run that lost what it cannot replace in place (a training rank, its last replica, a machine, the driver) is built
anew from its newest good checkpoint. A loss that comes back before a step was committed is the same loss; after so
many in a row the run stops with it.
"""

from __future__ import annotations

from roll_core.cluster import PlacementError, Stuck, WorkerLost
from roll_core.config.faults import FaultsConfig

LOSSES = (WorkerLost, Stuck, PlacementError)
"""Failures of processes and machines. Anything else would happen again."""
LONGEST_WAIT_S = 60.0


class Patience:
    """Counts losses, and says whether to go on after one.

    Args:
        faults: how many in a row are borne, and how long to wait after each.
    """

    def __init__(self, faults: FaultsConfig) -> None:
        self._faults = faults
        self._furthest = -1
        self.in_a_row = 0
        """Losses since a step was committed."""
        self.count = 0
        """Losses in all."""

    def after_loss(self, step: int) -> float | None:
        """Seconds to wait before going on; None when it is enough.

        Args:
            step: committed steps, as far as they are known.
        """
        if step > self._furthest:
            self._furthest, self.in_a_row = step, 0
        if self.in_a_row >= self._faults.restarts:
            return None
        wait_s: float = min(self._faults.wait_s * 2 ** min(self.in_a_row, 10), LONGEST_WAIT_S)
        self.in_a_row += 1
        self.count += 1
        return wait_s

    @property
    def verdict(self) -> str:
        """Why it is enough, in the words of a message."""
        if not self._faults.restarts:
            return "the run does not restart by itself (faults.restarts is 0)"
        return f"gave up after {self.in_a_row} restarts in a row (faults.restarts)"
