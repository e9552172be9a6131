"""Lays a model out over the mesh: matrices split by the model's plan, then everything sharded by FSDP2."""

from __future__ import annotations

import fnmatch
import logging
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from roll_core.errors import BackendError
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.processes import Ranks

_log = logging.getLogger(__name__)
_SUMMED = "replicated_with_grad_allreduce"
"""transformers' name for a parameter that every rank holds, and whose gradient is the sum over ranks."""


def shard_module(root: nn.Module, ranks: Ranks, options: FsdpOptions, dtype: torch.dtype | None) -> None:
    """Shard `root` in place: each block of layers is gathered when it is computed, all else with the root.

    Gradients are summed over ranks and never averaged, since the weights of the objective hold its denominators.

    Args:
        root: the module whose forward is called.
        ranks: where to.
        options: mesh and memory settings.
        dtype: what trained parameters are computed in; None leaves the format they have.
    """
    policy = MixedPrecisionPolicy(dtype, None if dtype is None else _reduce_dtype(options))
    shared: dict[str, Any] = {"mesh": ranks.data_mesh, "offload_policy": _offload(options)}
    blocks = _blocks(root)
    if not blocks:
        _log.warning("no layers are known to belong together, so all of %s is gathered at once", type(root).__name__)
    for block in blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=options.reshard_after_forward, **shared)
    fully_shard(root, mp_policy=policy, **shared)
    _sum_gradients(root)


def shard_wide(module: nn.Module, ranks: Ranks, options: FsdpOptions) -> None:
    """Shard a small module that computes in float32 whatever the rest does."""
    policy = MixedPrecisionPolicy(torch.float32, _reduce_dtype(options))
    fully_shard(module, mesh=ranks.data_mesh, mp_policy=policy, offload_policy=_offload(options))


def split_matrices(model: Any, mesh: DeviceMesh) -> frozenset[int]:
    """Split the layers' matrices over `mesh` by the model's tensor-parallel plan, in place.

    Embedding and output layer stay whole (they are sharded by FSDP).

    Returns:
        `id` of the parameters whose gradients have to be summed over `mesh`.

    Raises:
        BackendError: the model has no plan, a plan with styles unknown here, or heads that cannot be shared out.
    """
    plan: dict[str, str] = dict(getattr(model, "tp_plan", None) or {})
    outer = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    paths = {name for name, module in model.named_modules() if id(module) in outer}
    plan = {path: style for path, style in plan.items() if path not in paths}
    kind = type(model).__name__
    if not plan:
        raise BackendError(f"{kind} has no tensor-parallel plan in transformers; set tensor_parallel: 1")
    unknown = sorted(set(plan.values()) - _STYLES.keys() - {_SUMMED})
    if unknown:
        raise BackendError(f"the tensor-parallel plan of {kind} has styles unknown here: {', '.join(unknown)}")
    config = model.config.get_text_config()
    for heads in (config.num_attention_heads, getattr(config, "num_key_value_heads", None)):
        if heads is not None and heads % mesh.size():
            raise BackendError(f"{heads} heads of {kind} cannot be shared out over tensor_parallel: {mesh.size()}")
    styles = {path: _STYLES[style]() for path, style in plan.items() if style != _SUMMED}
    parallelize_module(model, mesh, styles, src_data_rank=None)
    summed = [path for path, style in plan.items() if style == _SUMMED]
    return frozenset(
        id(parameter)
        for name, parameter in model.named_parameters()
        if any(fnmatch.fnmatchcase(name.rpartition(".")[0], path) for path in summed)
    )


def _gathered() -> ParallelStyle:
    return ColwiseParallel(output_layouts=Replicate())


def _split_input() -> ParallelStyle:
    return RowwiseParallel(input_layouts=Replicate())


def _rowwise() -> ParallelStyle:
    return RowwiseParallel(input_layouts=Shard(-1))


_STYLES = {
    "colwise": ColwiseParallel,
    "colwise_gather_output": _gathered,
    "colwise_rep": _gathered,
    "rowwise": _rowwise,
    "rowwise_split_input": _split_input,
    "rowwise_rep": _split_input,
}


def _blocks(root: nn.Module) -> list[nn.Module]:
    """The layers that transformers says must not be torn apart, innermost models included."""
    names: set[str] = set()
    for module in root.modules():
        names |= set(getattr(module, "_no_split_modules", None) or ())
    return [module for module in root.modules() if type(module).__name__ in names]


def _sum_gradients(root: nn.Module) -> None:
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            module.set_reduce_scatter_unused_params(True, recurse=False)


def _offload(options: FsdpOptions) -> OffloadPolicy:
    return CPUOffloadPolicy() if options.cpu_offload else OffloadPolicy()


def _reduce_dtype(options: FsdpOptions) -> torch.dtype:
    return torch.float32 if options.reduce_precision == "float32" else torch.bfloat16
