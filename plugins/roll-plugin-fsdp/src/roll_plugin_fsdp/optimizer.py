"""AdamW on a rank's own shards, clipped by the norm over all ranks.

AdamW changes every number by itself, so each rank works on plain tensors that share memory with its shards; only the
norm needs the others, and with it steps are skipped by all ranks or by none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from roll_core.builtin.local_train.optimizer import Optimizer
from roll_core.contracts import OptimSettings
from roll_plugin_fsdp.processes import Ranks


class Shards:
    """A rank's shards of what is trained (`local_train.optimizer.Weights`).

    Args:
        parameters: what is trained, by name, sharded.
        ranks: who trains.
        summed: names whose gradients the tensor-parallel ranks hold parts of.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], ranks: Ranks, summed: frozenset[str]) -> None:
        self._parameters = {name: cast("DTensor", parameter) for name, parameter in parameters.items()}
        self._masters = {name: nn.Parameter(_local(parameter)) for name, parameter in self._parameters.items()}
        self._shares = [_share(parameter, ranks.size) for parameter in self._parameters.values()]
        self._ranks = ranks
        self._summed = summed

    @property
    def masters(self) -> Mapping[str, nn.Parameter]:
        """The shards as plain tensors over the same memory."""
        return self._masters

    def begin(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def finish(self) -> list[Tensor]:
        """This rank's part of the gradients; zeros for parameters that took no part. Every rank must call it."""
        grads = []
        mesh = self._ranks.tensor_mesh
        for name, master in self._masters.items():
            grad = cast("DTensor | None", self._parameters[name].grad)
            master.grad = torch.zeros_like(master) if grad is None else grad.to_local()
            if name in self._summed and mesh is not None:
                dist.all_reduce(master.grad, group=mesh.get_group())
            grads.append(master.grad)
        return grads

    def publish(self) -> None:
        """Nothing is left to do: masters and shards are the same memory."""

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Norm [] of the gradients over all ranks, float32 and the same on each; every rank must ask."""
        filled = [(grad, share) for grad, share in zip(gradients, self._shares, strict=True) if grad.numel()]
        square = 0.0
        if filled:
            norms = torch.stack(torch._foreach_norm([grad for grad, _ in filled])).double()
            weights = torch.tensor([share for _, share in filled], dtype=torch.float64, device=norms.device)
            square = float((norms.square() * weights).sum())
        return torch.tensor(self._ranks.total(square), dtype=torch.float64).sqrt().float()

    def weights(self) -> dict[str, Tensor]:
        """The sharded weights, over the memory in use."""
        return {name: parameter.detach() for name, parameter in self._parameters.items()}

    def sharded(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of this rank, by the names and in the shapes of `masters`, as parts of sharded ones."""
        return {name: _like(self._parameters[name], tensor) for name, tensor in tensors.items()}


class ShardedOptimizer(Optimizer):
    """AdamW over the shards of all ranks.

    Args:
        shards: what is trained.
        settings: rates, clipping, schedule.
        total_steps: optimiser steps of the whole run.
    """

    def __init__(self, shards: Shards, settings: OptimSettings, total_steps: int) -> None:
        super().__init__(shards, settings, total_steps, shards.norm)
        self.shards = shards

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Weights and moments as sharded tensors over the memory in use; what is read into them is taken over."""
        moments = {kind: self.shards.sharded(tensors) for kind, tensors in self.moments().items()}
        return {"weights": self.shards.weights(), **moments}


def _local(parameter: DTensor) -> Tensor:
    """This rank's shard, as a plain tensor over the same memory."""
    return cast("DTensor", parameter.detach()).to_local()


def _share(parameter: DTensor, size: int) -> float:
    """What part of a parameter's squares a rank answers for: the copies on other ranks answer for the rest."""
    mesh = parameter.device_mesh
    distinct = math.prod(mesh.size(i) for i, p in enumerate(parameter.placements) if not p.is_replicate())
    return distinct / size


def _like(parameter: DTensor, local: Tensor) -> DTensor:
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
