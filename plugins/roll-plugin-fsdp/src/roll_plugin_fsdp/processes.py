"""The process group a rank belongs to, the mesh over it, and how ranks agree about something."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from roll_core.errors import BackendError
from roll_plugin_fsdp.options import FsdpOptions

REPLICATE, SHARD, TENSOR = "replicate", "shard", "tensor"
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """This process among those that train together.

    `mesh` has the axes replicate, shard and tensor. Three groups over the host network: `control` exchanges small
    things during a step, `patient` waits for what takes long (reading and writing models), `saving` is for checkpoints
    that are written while training goes on.
    """

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    control: Any
    patient: Any
    saving: Any

    @property
    def data_mesh(self) -> DeviceMesh:
        """What the model is sharded over: one axis, or two with copies."""
        has_copies = self.mesh.size(0) > 1
        return self.mesh[REPLICATE, SHARD] if has_copies else self.mesh[SHARD]

    @property
    def tensor_mesh(self) -> DeviceMesh | None:
        """The ranks that split matrices among them; None when nobody does."""
        return self.mesh[TENSOR] if self.mesh.size(2) > 1 else None

    @property
    def data_index(self) -> int:
        """Which share of the data this rank computes."""
        return self.rank // self.mesh.size(2)

    def highest(self, values: Sequence[int], *, is_patient: bool = False) -> list[int]:
        """The largest of each value over all ranks."""
        tensor = torch.tensor(list(values), dtype=torch.int64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.patient if is_patient else self.control)
        return [int(value) for value in tensor]

    def total(self, value: float) -> float:
        """The sum of a value over all ranks, the same to the last bit on each."""
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.SUM, group=self.control)
        return float(tensor)

    def must_agree(self, facts: dict[str, Any]) -> None:
        """Check that every rank found the same.

        Raises:
            BackendError: ranks differ; names the fact and the ranks' values.
        """
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, facts, group=self.patient)
        for name in facts:
            values = [each[name] for each in found]
            if any(value != values[0] for value in values):
                raise BackendError(f"the ranks differ in {name}: {values}; set it in the options of the strategy")

    def leave(self) -> None:
        """Take the process group down."""
        if dist.is_initialized():
            dist.destroy_process_group()


def join(options: FsdpOptions) -> Ranks:
    """Join the process group that the environment names.

    Raises:
        BackendError: the environment names no group, or the device cannot be used.
        ConfigError: so many ranks cannot be laid out as the options say.
    """
    missing = [name for name in _ENVIRONMENT if name not in os.environ]
    if missing:
        raise BackendError(f"{', '.join(missing)} not set: start ranks through an executor")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    layout = options.mesh(size)
    device = _device(options)
    patience = timedelta(seconds=options.start_timeout_s)
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch re-exports it without saying so
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=rank == 0, timeout=patience
    )
    limit = timedelta(seconds=options.collective_timeout_s)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    mesh = init_device_mesh(
        device.type, (layout.replicate, layout.shard, layout.tensor), mesh_dim_names=(REPLICATE, SHARD, TENSOR)
    )
    control = dist.new_group(backend="gloo", timeout=limit)
    patient, saving = (dist.new_group(backend="gloo", timeout=patience) for _ in range(2))
    return Ranks(rank, size, device, mesh, control, patient, saving)


def wait_for_all(ranks: Ranks, seconds: float) -> None:
    """Return when every rank has come here.

    Raises:
        BackendError: some did not in time; says which.
    """
    try:
        dist.monitored_barrier(ranks.patient, timedelta(seconds=seconds), wait_all_ranks=True)
    except RuntimeError as error:
        raise BackendError(f"not every rank had its models within {seconds:g} s: {error}") from error


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one rank of this user on this machine at a time run the block: it holds a whole model in host memory."""
    with (Path(tempfile.gettempdir()) / f"roll-fsdp-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go of when the file is closed, however the process ends
        yield


def _device(options: FsdpOptions) -> torch.device:
    if options.device != "cuda":
        return torch.device("cpu")
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        raise BackendError(
            "train.strategy.device is 'cuda', but this rank sees no CUDA device or its torch has no NCCL; give ranks "
            "GPUs, or set device: cpu"
        )
    index = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
