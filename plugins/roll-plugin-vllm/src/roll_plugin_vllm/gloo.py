"""A pair of engines for vLLM's weight transfer that broadcasts over TCP, for replicas on other machines without NCCL.

Every worker gets the whole weights into its host memory, compares them with checksums of what was sent, and loads them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import torch
from vllm.distributed.weight_transfer import (
    TrainerWeightTransferEngine,
    WeightTransferEngine,
    WeightTransferTrainerFactory,
)
from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo

from roll_core.errors import BackendError
from roll_plugin_vllm.broadcasts import Broadcasts, checksum
from roll_plugin_vllm.transfer import ENGINES, load_weights


@dataclass
class GlooInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not there where types are checked
    """Where the group meets, and which ranks are a replica's."""

    address: str
    port: int
    world_size: int
    rank_offset: int
    timeout_s: float


@dataclass
class GlooUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # as above
    """What is sent, in this order."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class GlooEngine(WeightTransferEngine[GlooInit, GlooUpdate]):  # type: ignore[misc]  # as above
    """A worker's end."""

    init_info_cls = GlooInit
    update_info_cls = GlooUpdate
    supports_draft_weight_update = False

    _group: Broadcasts | None = None

    def init_transfer_engine(self, init_info: GlooInit) -> None:
        """Join the trainer's group."""
        rank = init_info.rank_offset + self.parallel_config.rank
        bound = timedelta(seconds=init_info.timeout_s)
        self._group = Broadcasts(init_info.address, init_info.port, rank, init_info.world_size, bound)

    def start_weight_update(self) -> None:
        """Nothing: weights are loaded when all of them are here."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Without the device synchronisation of the base class, which CPUs do not have."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: GlooUpdate) -> None:
        """Receive, check, load.

        Raises:
            BackendError: bytes differ from what was sent, or do not fit.
        """
        if self._group is None:
            raise BackendError("this worker has joined no group to receive weights from")
        kinds = [getattr(torch, name) for name in update_info.dtype_names]
        received = [torch.empty(shape, dtype=kind) for shape, kind in zip(update_info.shapes, kinds, strict=True)]
        sums = torch.empty(len(received), dtype=torch.int64)
        for tensor in (*received, sums):
            self._group.broadcast(tensor)
        for name, tensor, sent in zip(update_info.names, received, sums.tolist(), strict=True):
            if checksum(tensor) != sent:
                raise BackendError(f"the weights of '{name}' arrived damaged")
        load_weights(self, zip(update_info.names, received, strict=True))

    def finish_weight_update(self) -> None:
        """Nothing is left to do."""

    def shutdown(self) -> None:
        """Leave the group."""
        self._group = None


@dataclass
class GlooTrainerInit(TrainerInitInfo):  # type: ignore[misc]  # as above
    """The trainer's end of a group; it is rank 0."""

    backend: ClassVar[str] = ENGINES["gloo"]

    address: str
    port: int
    world_size: int
    timeout_s: float


class GlooTrainer(TrainerWeightTransferEngine[GlooTrainerInit]):  # type: ignore[misc]  # as above
    """The trainer's end."""

    init_info_cls = GlooTrainerInit

    _group: Broadcasts | None = None

    @classmethod
    def trainer_init(cls, init_info: GlooTrainerInit, *, client: Any, source: Any = None) -> Self:
        """Meet all workers, which are told where."""
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        bound = timedelta(seconds=init_info.timeout_s)
        where = {"address": init_info.address, "port": init_info.port, "world_size": init_info.world_size}
        with ThreadPoolExecutor(1) as thread:
            told = {**where, "rank_offset": 1, "timeout_s": init_info.timeout_s}
            joined = thread.submit(client.init_weight_transfer_engine, told)
            engine._group = Broadcasts(init_info.address, init_info.port, 0, init_info.world_size, bound)
            joined.result()
        return engine

    def send_weights(self) -> None:
        """One update, from pause to resume."""
        metadata = self.source.metadata()
        told = {
            "names": [one.name for one in metadata],
            "dtype_names": [str(one.dtype).removeprefix("torch.") for one in metadata],
            "shapes": [list(one.shape) for one in metadata],
        }
        self.client.start_weight_update()
        with ThreadPoolExecutor(1) as thread:
            loaded = thread.submit(self.client.update_weights, told)
            self._broadcast()
            loaded.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Leave the group."""
        self._group = None

    def _broadcast(self) -> None:
        if self._group is None:
            raise BackendError("the group to send weights to was left")
        sums = []
        for _, tensor in self.source:
            sent = tensor.detach().cpu().contiguous()
            sums.append(checksum(sent))
            self._group.broadcast(sent)
        self._group.broadcast(torch.tensor(sums, dtype=torch.int64))


def register_trainer() -> None:
    """Make the trainer's end known to vLLM in this process; once more does nothing."""
    if ENGINES["gloo"] not in WeightTransferTrainerFactory._registry:
        WeightTransferTrainerFactory.register_engine(ENGINES["gloo"], GlooTrainer)
