"""A verifier whose module loads a heavy package (pretended, and only in an interpreter without pytest)."""

from __future__ import annotations

import sys
from types import ModuleType

from roll_kit_faults import Verifier

if "pytest" not in sys.modules:
    sys.modules["ray"] = ModuleType("ray")

__all__ = ["Verifier"]
