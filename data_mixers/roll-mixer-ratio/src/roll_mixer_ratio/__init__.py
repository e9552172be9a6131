"""Domain ratios with exact long-run shares."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_mixer_ratio.mixer import RatioMixer
    from roll_mixer_ratio.shares import SchedulePoint

__all__ = [
    "RatioMixer",
    "SchedulePoint",
]

_HOMES = {
    "RatioMixer": "roll_mixer_ratio.mixer",
    "SchedulePoint": "roll_mixer_ratio.shares",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that declaring the plugin costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
