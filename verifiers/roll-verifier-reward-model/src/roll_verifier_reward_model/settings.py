"""The options of the verifier, and how a raw output becomes a score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Transform = Literal["sigmoid", "softmax", "linear", "identity"]
Overflow = Literal["refuse", "truncate"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """See `RewardModelVerifier` for the meaning of each."""

    folder: Path
    label: str | int | None
    transform: Transform
    scale: float
    offset: float
    threshold: float
    overflow: Overflow
    max_tokens: int | None
    max_chars: int
    strip_thinking: bool
    device: str
    dtype: Dtype
    max_batch: int
    max_batch_tokens: int
    max_wait_ms: float

    def __post_init__(self) -> None:
        positive = {
            "max_chars": self.max_chars,
            "max_batch": self.max_batch,
            "max_batch_tokens": self.max_batch_tokens,
            "max_tokens": 1 if self.max_tokens is None else self.max_tokens,
        }
        for name, value in positive.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"threshold must be in (0, 1], got {self.threshold}")
        if not (math.isfinite(self.max_wait_ms) and self.max_wait_ms >= 0.0):
            raise ValueError(f"max_wait_ms must be finite and not negative, got {self.max_wait_ms}")
        if not (math.isfinite(self.scale) and math.isfinite(self.offset) and self.scale != 0.0):
            raise ValueError(f"scale and offset must be finite, scale not 0, got {self.scale} and {self.offset}")
        if self.transform in ("softmax", "identity") and (self.scale, self.offset) != (1.0, 0.0):
            raise ValueError(f"scale and offset have no meaning for transform '{self.transform}'")


def to_score(raw: float, settings: Settings) -> float | None:
    """The score of a finite raw output; None when "identity" is asked for and the output lies outside [0, 1].

    Args:
        raw: the logit, or under "softmax" the probability already.
        settings: transform, scale and offset.
    """
    if settings.transform in ("softmax", "identity"):
        return raw if 0.0 <= raw <= 1.0 else None
    value = settings.scale * raw + settings.offset
    if settings.transform == "linear":
        return min(1.0, max(0.0, value))
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))
