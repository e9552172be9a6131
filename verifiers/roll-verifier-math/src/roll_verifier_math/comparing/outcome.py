"""What a comparison finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NUMERIC = "numeric"
_WEAKEST_FIRST = (NUMERIC, "symbolic", "region")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The finding, and the stage that made it.

    Stages: "exact", "symbolic" (proved), "numeric" (agreement without proof), "structure", "region", "words", "date",
    "unit", "base", "modular", "constant".
    """

    is_equal: bool
    stage: str


def combined(outcomes: Iterable[Outcome]) -> str:
    """The stage of a list whose items are equal: what was only found numerically stays visible."""
    stages = {outcome.stage for outcome in outcomes}
    return next((stage for stage in _WEAKEST_FIRST if stage in stages), "structure")
