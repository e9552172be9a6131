"""AdamW on the master weights: schedule, clipping, and steps that are skipped rather than poison the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from roll_core.builtin.local_train.objective import Meter
from roll_core.contracts import OptimSettings

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Weights(Protocol):
    """What an optimiser works on: `masters.MasterWeights`, or shards of weights."""

    @property
    def masters(self) -> Mapping[str, nn.Parameter]:
        """What is trained, by name, in float32; `grad` is set when `finish` returns."""
        ...

    def finish(self) -> list[Tensor]:
        """The gradients of the step, in the order of `masters`."""
        ...

    def publish(self) -> None:
        """Bring changed masters to where they are computed with."""
        ...


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one optimiser step did: gradient norm before clipping, learning rate, and whether it was skipped."""

    grad_norm: float
    lr: float
    skipped: bool

    def add_to(self, meter: Meter, role: str) -> None:
        """Add its metrics, under `train/` for the policy and the role's name for others."""
        prefix = "train" if role == "policy" else role
        meter.add(f"{prefix}/lr", self.lr)
        meter.add(f"{prefix}/skipped_steps", float(self.skipped), 0.0)
        if not self.skipped:
            meter.add(f"{prefix}/grad_norm", self.grad_norm)


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
        norm: norm of gradients [] in float32, where the masters are not all there is.
    """

    def __init__(
        self,
        weights: Weights,
        settings: OptimSettings,
        total_steps: int,
        norm: Callable[[Sequence[Tensor]], Tensor] = torch.nn.utils.get_total_norm,
    ) -> None:
        self.weights = weights
        self._norm = norm
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
        norm = self._norm(self.weights.finish())
        value = float(norm)
        if not math.isfinite(value):
            return StepReport(value, lr, skipped=True)
        limit = self._settings.clip_norm
        if 0 < limit < value:
            torch.nn.utils.clip_grads_with_norm_(self.weights.masters.values(), limit, norm)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self.weights.publish()
        return StepReport(value, lr, skipped=False)

    @property
    def steps(self) -> tuple[int, int]:
        """Steps of the schedule; and those of them that were not skipped."""
        state = next(iter(self._adamw.state.values()), None)
        return self._step, 0 if state is None else int(state["step"])

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """AdamW's moments, by kind and name of the master: the tensors in use, so what is written there is taken over.

        Those of the first step are zeros.
        """
        masters = self.weights.masters
        if any(master not in self._adamw.state for master in masters.values()):
            self._make_moments()
        return {kind: {name: self._adamw.state[m][kind] for name, m in masters.items()} for kind in _MOMENTS}

    def go_on_from(self, scheduled: int, taken: int) -> None:
        """Go on as after so many `steps`, with the moments that were written to `moments()`."""
        self._step = scheduled
        for state in self._adamw.state.values():
            state["step"].fill_(float(taken))

    def _make_moments(self) -> None:
        """Let AdamW make its state now, by a step that changes nothing."""
        masters = self.weights.masters.values()
        gradients = [master.grad for master in masters]
        for master in masters:
            master.grad = torch.zeros_like(master)
        for group in self._adamw.param_groups:
            group["lr"] = 0.0
        self._adamw.step()
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient
            self._adamw.state[master]["step"].zero_()

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
