"""Judges model-written programs by tests, in a jail that expected values never enter.

Public names are imported on first use, so that declaring the plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_verifier_code.extract import NoProgramError, extract_code
    from roll_verifier_code.formats import normalise
    from roll_verifier_code.outcome import Outcome, outcome_of

__all__ = ["NoProgramError", "Outcome", "extract_code", "normalise", "outcome_of"]

_HOMES = {
    "NoProgramError": "roll_verifier_code.extract",
    "Outcome": "roll_verifier_code.outcome",
    "extract_code": "roll_verifier_code.extract",
    "normalise": "roll_verifier_code.formats",
    "outcome_of": "roll_verifier_code.outcome",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
