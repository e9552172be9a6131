"""AdamW on a rank's own shards: clipping by the norm over all ranks, and steps that all skip or none.

AdamW changes every number by itself, so each rank works on plain tensors that share memory with its shards; only the
norm needs the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from roll_core.builtin.local_train.optimizer import StepReport, learning_rate
from roll_core.contracts import OptimSettings
from roll_plugin_fsdp.processes import Ranks

_MOMENTS = ("exp_avg", "exp_avg_sq")
_EPS = 1e-6
"""Added to the norm that gradients are divided by, as `torch.nn.utils.clip_grad_norm_` does."""


class ShardedOptimizer:
    """AdamW with decoupled weight decay (on matrices only), its schedule, and clipping.

    Args:
        parameters: what is trained, by name, sharded.
        settings: rates, clipping, schedule.
        total_steps: optimiser steps of the whole run.
        ranks: who trains.
        summed: names whose gradients the tensor-parallel ranks hold parts of.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        settings: OptimSettings,
        total_steps: int,
        ranks: Ranks,
        summed: frozenset[str],
    ) -> None:
        self._parameters = {name: cast("DTensor", parameter) for name, parameter in parameters.items()}
        self._settings = settings
        self._total_steps = total_steps
        self._ranks = ranks
        self._summed = summed
        self._step = 0
        self._own = {name: nn.Parameter(_local(p)) for name, p in self._parameters.items()}
        self._shares = [_share(p, ranks.size) for p in self._parameters.values()]
        own = list(self._own.values())
        groups = [
            {"params": [p for p in own if p.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [p for p in own if p.ndim < 2], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            fused=own[0].device.type in ("cpu", "cuda"),
        )
        self._make_moments()

    def begin(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def step(self, has_failed: bool) -> StepReport | None:
        """Clip, and update the shards; every rank must call it.

        A gradient that is not finite leaves everything as it was on all ranks, but the schedule goes on.

        Args:
            has_failed: whether this rank could not compute its part.

        Returns:
            None when some rank has failed; nothing was changed then.
        """
        grads = self._gradients()
        squares = _squares(grads, self._shares) if not has_failed else 0.0
        square, failures = self._ranks.total([squares, float(has_failed)])
        if failures:
            return None
        lr = learning_rate(self._settings, self._step, self._total_steps)
        self._step += 1
        norm = math.sqrt(square) if math.isfinite(square) else square
        if not math.isfinite(norm):
            return StepReport(norm, lr, skipped=True)
        limit = self._settings.clip_norm
        if 0 < limit < norm:
            torch._foreach_mul_(grads, limit / (norm + _EPS))
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        return StepReport(norm, lr, skipped=False)

    def state(self) -> dict[str, Any]:
        """Weights and moments as sharded tensors over the memory in use; what is loaded into them is taken over."""
        moments = {name: self._adamw.state[own] for name, own in self._own.items()}
        return {
            "weights": {name: p.detach() for name, p in self._parameters.items()},
            **{kind: {n: _like(self._parameters[n], moments[n][kind]) for n in moments} for kind in _MOMENTS},
        }

    def counters(self) -> dict[str, int]:
        """Steps of the schedule, and steps that were not skipped."""
        return {"schedule": self._step, "adamw": int(self._adamw.state[next(iter(self._own.values()))]["step"])}

    def set_counters(self, counters: Mapping[str, int]) -> None:
        """Go on from saved counters."""
        self._step = int(counters["schedule"])
        for state in self._adamw.state.values():
            state["step"].fill_(float(counters["adamw"]))

    def _make_moments(self) -> None:
        """Let AdamW make its state now, by a step that changes nothing, so that a checkpoint can be read into it."""
        for own in self._own.values():
            own.grad = torch.zeros_like(own)
        for group in self._adamw.param_groups:
            group["lr"] = 0.0
        self._adamw.step()
        for own in self._own.values():
            own.grad = None
        self.set_counters({"schedule": 0, "adamw": 0})

    def _gradients(self) -> list[Tensor]:
        """This rank's gradients, in the order of the parameters, set on what AdamW works on."""
        grads = []
        mesh = self._ranks.tensor_mesh
        for name, own in self._own.items():
            grad = cast("DTensor | None", self._parameters[name].grad)
            own.grad = torch.zeros_like(own) if grad is None else grad.to_local()
            if name in self._summed and mesh is not None:
                dist.all_reduce(own.grad, group=mesh.get_group())
            grads.append(own.grad)
        return grads


def _local(parameter: DTensor) -> Tensor:
    """This rank's shard, as a plain tensor over the same memory."""
    return cast("DTensor", parameter.detach()).to_local()


def _share(parameter: DTensor, size: int) -> float:
    """What part of a parameter's squares a rank answers for: the copies on other ranks answer for the rest."""
    mesh = parameter.device_mesh
    distinct = math.prod(mesh.size(i) for i, p in enumerate(parameter.placements) if not p.is_replicate())
    return distinct / size


def _squares(grads: Sequence[Tensor], shares: Sequence[float]) -> float:
    filled = [(grad, share) for grad, share in zip(grads, shares, strict=True) if grad.numel()]
    if not filled:
        return 0.0
    norms = torch.stack(torch._foreach_norm([grad for grad, _ in filled])).double()
    weights = torch.tensor([share for _, share in filled], dtype=torch.float64, device=norms.device)
    return float((norms.square() * weights).sum())


def _like(parameter: DTensor, local: Tensor) -> DTensor:
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
