"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import ModelCases

CONFORMANCE = {"models/smollm2-135m": ModelCases(is_runnable=False)}
"""Preparing the model writes half a gigabyte."""
