"""What the driver hands to vLLM's trainer engines."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from vllm.distributed.weight_transfer import ParamMeta
from vllm.distributed.weight_transfer import WeightSource as VllmWeightSource
from vllm.distributed.weight_transfer.base import TrainerInitInfo
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.utils.network_utils import get_ip, get_open_port

from roll_core.contracts import WeightSource
from roll_plugin_vllm.gloo import GlooTrainerInit, register_trainer
from roll_plugin_vllm.routes import Transfer


class TrainerSource(VllmWeightSource):  # type: ignore[misc]  # vLLM is not there where types are checked
    """The weight source of each update in turn, as vLLM's trainer engines read it.

    Args:
        current: that of the first.
    """

    def __init__(self, current: WeightSource) -> None:
        self.current = current

    def metadata(self) -> list[ParamMeta]:
        """Names, dtypes and shapes."""
        return [ParamMeta(one.name, getattr(torch, one.dtype), tuple(one.shape)) for one in self.current.manifest()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self.current.tensors())


def init_info_for(route: Transfer, *, world_size: int, bound_s: float) -> TrainerInitInfo:
    """What vLLM's factory makes the trainer engine of a way from.

    Args:
        route: "gloo", "nccl" or "ipc".
        world_size: trainer and workers together.
        bound_s: longest wait for each other.
    """
    if route == "ipc":
        return IPCTrainerInitInfo(rank=0, packed=True)
    address, port = get_ip(), get_open_port()
    if route == "nccl":
        return NCCLTrainerInitInfo(rank=0, master_address=address, master_port=port, world_size=world_size)
    register_trainer()
    return GlooTrainerInit(rank=0, address=address, port=port, world_size=world_size, timeout_s=bound_s)
