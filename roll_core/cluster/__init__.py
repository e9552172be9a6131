"""The processes of a run: started, called, watched and ended the same way on one machine and on a Ray cluster.

Limits:

* Results come to the driver; only arguments can stay outside of it (`Executor.put`). Locally a reference is sent again
  with every call that names it; on Ray it lies in the object store once per machine.
* A plain method cannot be broken off, only its process ended; cancelling reaches coroutines and what has not begun.
* A group has a fixed number of workers, so that a call to all of them always means the same ones. Replicas that join
  and leave are groups of one; `Executor.health` sees them all.
* Objects live on a thread that is not the main one, so they cannot install signal handlers.
* Stack dumps, memory and the end of workers with the driver rest on Linux (signals, /proc, pipes). A process that the
  driver forked without exec keeps local workers alive as long as it lives itself.
* Devices are counted as NVIDIA's are (`CUDA_VISIBLE_DEVICES`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_core.cluster.errors import PlacementError, Stuck, WorkerLost
    from roll_core.cluster.group import WorkerGroup
    from roll_core.cluster.local import LocalExecutor
    from roll_core.cluster.ray_executor import RayExecutor
    from roll_core.cluster.reference import Reference, Transfers
    from roll_core.cluster.router import Router
    from roll_core.cluster.sharding import balanced_shards
    from roll_core.cluster.spec import Executor, Seat, WorkerHealth, WorkerSpec

__all__ = [
    "Executor",
    "LocalExecutor",
    "PlacementError",
    "RayExecutor",
    "Reference",
    "Router",
    "Seat",
    "Stuck",
    "Transfers",
    "WorkerGroup",
    "WorkerHealth",
    "WorkerLost",
    "WorkerSpec",
    "balanced_shards",
]

_HOMES = {
    "Executor": "spec",
    "LocalExecutor": "local",
    "PlacementError": "errors",
    "RayExecutor": "ray_executor",
    "Reference": "reference",
    "Router": "router",
    "Seat": "spec",
    "Stuck": "errors",
    "Transfers": "reference",
    "WorkerGroup": "group",
    "WorkerHealth": "spec",
    "WorkerLost": "errors",
    "WorkerSpec": "spec",
    "balanced_shards": "sharding",
}


def __getattr__(name: str) -> Any:
    """Import on use, so that a worker process loads only what it needs."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
