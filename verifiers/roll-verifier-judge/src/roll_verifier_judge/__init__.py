"""Verifiers that ask a language model: one that scores a response, and one that compares two.

Public names are imported on first use, so that declaring the plugin costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_verifier_judge.parse import Parsed, parse_reply
    from roll_verifier_judge.scales import Scale, read_scale, schema_of

__all__ = ["Parsed", "Scale", "parse_reply", "read_scale", "schema_of"]

_HOMES = {
    "Parsed": "roll_verifier_judge.parse",
    "Scale": "roll_verifier_judge.scales",
    "parse_reply": "roll_verifier_judge.parse",
    "read_scale": "roll_verifier_judge.scales",
    "schema_of": "roll_verifier_judge.scales",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
