"""A rollfile: the verdicts of `digits.py`, each after a pause, so that a step takes long enough to be hit."""

from __future__ import annotations

import time
from typing import Any

from roll_core import verifier

PAUSE_S = 0.06


@verifier
def digits(response: str, reference: Any) -> float:
    """Share of characters that are digits; an empty response scores 0."""
    time.sleep(PAUSE_S)
    return sum(c.isdigit() for c in response) / len(response) if response else 0.0
