"""Settings that cross the boundary to a train strategy: plain dataclasses, checked by pydantic in a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

_STRICT: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class OptimSettings:
    """AdamW and its schedule. Steps are optimiser steps."""

    lr: Annotated[float, Field(ge=0)] = 1e-6
    """Largest learning rate."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of AdamW's first and second moments."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay."""
    clip_norm: Annotated[float, Field(ge=0)] = 1.0
    """Largest gradient norm; 0 switches clipping off."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; the falling ones end at 0."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Low-rank adapters in place of full fine-tuning (Hu et al. 2021, arXiv:2106.09685)."""

    rank: Annotated[int, Field(ge=1)] = 16
    """Inner dimension of an adapter."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """The adapter is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on the adapter's input while training."""
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the modules that get adapters; `all-linear` takes every linear layer but the output layer."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT


@dataclass(frozen=True, slots=True)
class TrainSetup:
    """What a train strategy is built from, beside its own options."""

    model: Path
    optim: OptimSettings
    total_steps: int
    """Optimiser steps of the whole run, for the schedule."""
    seed: int = 0
    lora: LoraSettings | None = None
    reference: Path | None = None
    """Frozen reference model; None when nothing reads `ref_logprobs`."""
    teachers: Mapping[str, Path] = field(default_factory=dict)
    critic: Path | None = None
    """Where the critic starts from; None when nothing reads `values`."""
    critic_optim: OptimSettings | None = None
