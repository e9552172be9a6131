"""A rollfile: judges the share of digits in a response, in a worker process."""

from __future__ import annotations

from typing import Any

from roll_core import verifier


@verifier
def digits(response: str, reference: Any) -> float:
    """Share of characters that are digits; an empty response scores 0."""
    return sum(c.isdigit() for c in response) / len(response) if response else 0.0
