"""Domain ratios with exact long-run shares."""

from __future__ import annotations

from roll_mixer_ratio.mixer import RatioMixer
from roll_mixer_ratio.shares import SchedulePoint

__all__ = ["RatioMixer", "SchedulePoint"]
