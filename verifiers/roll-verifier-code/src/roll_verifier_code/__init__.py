"""Judges model-written programs by tests, in a jail that expected values never enter."""

from __future__ import annotations

from roll_verifier_code.extract import NoProgramError, extract_code
from roll_verifier_code.formats import normalise
from roll_verifier_code.outcome import Outcome, outcome_of

__all__ = ["NoProgramError", "Outcome", "extract_code", "normalise", "outcome_of"]
