"""What a program may use, per run and altogether."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from roll_core.sandbox import Limits
from roll_verifier_code.outcome import CaseOutcome

_SPENT = CaseOutcome("timeout", "not run: the time for all cases together was used up")


_LEAST_S = 0.01
"""What is less than this is no time to run anything in."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one answer's runs."""

    limits: Limits
    """Of one run."""
    total_s: float | None = None
    """Seconds of wall clock for all runs together; None sets no bound."""
    stop_early: bool = False
    """Whether the cases behind one that failed are left out."""
    started: float = field(default_factory=time.monotonic)

    def next_run(self) -> Limits | None:
        """Limits of the next run, or None when the total is used up."""
        if self.total_s is None:
            return self.limits
        left = self.started + self.total_s - time.monotonic()
        return replace(self.limits, wall_s=min(self.limits.wall, left)) if left >= _LEAST_S else None

    def each(self, count: int, judge: Callable[[int, Limits], CaseOutcome]) -> Iterator[CaseOutcome]:
        """Judge case after case; each has a run of its own, also behind one that failed."""
        for index in range(count):
            limits = self.next_run()
            found = judge(index, limits) if limits else _SPENT
            yield found
            if self.stop_early and found.word != "pass":
                return
