"""Which way new weights take to the replicas, from what was asked for and where both sides' tensors are."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

import torch

from roll_core.errors import BackendError

Transfer = Literal["auto", "shared_memory", "gloo", "nccl", "ipc"]
SHARED_MEMORY: Transfer = "shared_memory"


def choose(wish: Transfer, source: Set[torch.device], replicas: Sequence[tuple[str, ...]]) -> Transfer:
    """The way to take.

    Args:
        wish: the option `transfer`.
        source: devices of the trainer's tensors.
        replicas: identifiers of the devices of each replica; empty on CPUs.

    Raises:
        BackendError: the way that was asked for does not lead there.
    """
    obstacles: dict[Transfer, str] = {"ipc": "", "nccl": ""}
    if wish in ("auto", *obstacles):
        trainer = frozenset(map(identifier, source))
        obstacles = {"ipc": _no_ipc(trainer, replicas), "nccl": _no_nccl(trainer, replicas)}
    if wish == "auto":
        return next((way for way, obstacle in obstacles.items() if not obstacle), SHARED_MEMORY)
    if obstacles.get(wish):
        raise BackendError(f"rollout.backend.transfer is {wish}, but {obstacles[wish]}; use auto")
    return wish


def identifier(device: torch.device) -> str:
    """What names a device in every process of a machine; empty for host memory."""
    return "" if device.type == "cpu" else f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def _no_ipc(trainer: Set[str], replicas: Sequence[tuple[str, ...]]) -> str:
    if "" in trainer or len(trainer) != 1:
        return f"the trainer's weights are not on one device of this process ({_names(trainer)})"
    others = sorted({name for devices in replicas for name in devices or ("",)} - trainer)
    return f"replicas are on other devices than the trainer ({_names(others)})" if others else ""


def _no_nccl(trainer: Set[str], replicas: Sequence[tuple[str, ...]]) -> str:
    if "" in trainer or len(trainer) != 1:
        return f"the trainer's weights are not on one device of this process ({_names(trainer)})"
    if not all(replicas):
        return "replicas are on CPUs"
    shared = sorted(trainer & {name for devices in replicas for name in devices})
    return f"trainer and replicas share {_names(shared)}, on which NCCL takes one process" if shared else ""


def _names(devices: Sequence[str] | Set[str]) -> str:
    return ", ".join(sorted(name or "host memory" for name in devices)) or "none"
