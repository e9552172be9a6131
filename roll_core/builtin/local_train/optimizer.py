"""AdamW on the master weights: schedule, clipping, and steps that are skipped rather than poison the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.contracts import OptimSettings


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one optimiser step did: gradient norm before clipping, learning rate, and whether it was skipped."""

    grad_norm: float
    lr: float
    skipped: bool


def learning_rate(settings: OptimSettings, step: int, total_steps: int) -> float:
    """Learning rate of optimiser step `step` (from 0) out of `total_steps`.

    It rises linearly over the warm-up, whose last step has the full rate, then stays, falls linearly or along half a
    cosine; the falling ones would reach 0 one step after the last.
    """
    if step < settings.warmup_steps:
        return settings.lr * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.lr
    span = max(1, total_steps - settings.warmup_steps)
    progress = min(1.0, (step - settings.warmup_steps) / span)
    if settings.schedule == "linear":
        return settings.lr * (1.0 - progress)
    return settings.lr * 0.5 * (1.0 + math.cos(math.pi * progress))


class Optimizer:
    """AdamW with decoupled weight decay (on matrices only, as is usual) and its schedule.

    Args:
        weights: what is trained.
        settings: rates, clipping, schedule.
        total_steps: optimiser steps of the whole run.
    """

    def __init__(self, weights: MasterWeights, settings: OptimSettings, total_steps: int) -> None:
        self._weights = weights
        self._settings = settings
        self._total_steps = total_steps
        self._step = 0
        masters = list(weights.masters.values())
        groups = [
            {"params": [m for m in masters if m.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [m for m in masters if m.ndim < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            fused=masters[0].device.type in ("cpu", "cuda"),
        )

    def step(self) -> StepReport:
        """Clip, update the masters and publish them.

        A gradient that is not finite leaves everything as it was, but the schedule goes on.
        """
        lr = learning_rate(self._settings, self._step, self._total_steps)
        self._step += 1
        grads = self._weights.finish()
        norm = torch.nn.utils.get_total_norm(grads)
        value = float(norm)
        if not math.isfinite(value):
            return StepReport(value, lr, skipped=True)
        limit = self._settings.clip_norm
        if 0 < limit < value:
            torch.nn.utils.clip_grads_with_norm_(self._weights.masters.values(), limit, norm)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._weights.publish()
        return StepReport(value, lr, skipped=False)

    def state_dict(self) -> dict[str, Any]:
        """Moments and the number of steps taken."""
        return {"adamw": self._adamw.state_dict(), "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; betas, eps and weight decay stay those of the settings."""
        own = [{k: v for k, v in group.items() if k != "params"} for group in self._adamw.param_groups]
        self._adamw.load_state_dict(state["adamw"])
        for group, settings in zip(self._adamw.param_groups, own, strict=True):
            group.update(settings)
        self._step = int(state["step"])
