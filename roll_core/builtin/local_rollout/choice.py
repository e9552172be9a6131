"""The component's factory: the engine in the driver's process, or replicas of it in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from roll_core.builtin.device import Precision
from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.replicas.backend import ReplicatedBackend
from roll_core.builtin.local_rollout.replicas.fleet import Bounds
from roll_core.cluster import Executor
from roll_core.errors import ConfigError


class _Engine(TypedDict):
    max_slots: int
    max_tokens: int | None
    precision: Precision
    device: str


def make_backend(
    *,
    model: Path,
    seed: int,
    executor: Executor | None = None,
    replicas: int = 0,
    cpus: int = 1,
    max_restarts: int = 3,
    stuck_s: float = 300.0,
    start_timeout_s: float = 600.0,
    max_slots: int = 64,
    max_tokens: int | None = None,
    precision: Precision = "auto",
    device: str = "auto",
) -> LocalRolloutBackend | ReplicatedBackend:
    """Build the built-in rollout backend.

    Args:
        model: Hugging Face folder.
        seed: the run's seed; it is mixed into every request's random stream.
        executor: starts the processes of replicas; None where the run keeps to one process.
        replicas: processes that generate, started through `cluster.executor`; 0 generates in the driver's process. They
            draw the same tokens as the driver would, are replaced when they are lost, and join and leave with
            `roll scale`. Early stopping in sync mode needs 0.
        cpus: processor cores, and so threads, of one replica.
        max_restarts: replacements of one replica in a row, without a request that ended in between, after which it is
            given up. When the last one is, the run is told that it lost its workers.
        stuck_s: seconds without an answer of a replica, or without a step while it has requests, after which it is
            replaced; also the bound on taking over weights.
        start_timeout_s: bound on the start of a replica, in seconds.
        max_slots: requests decoded together (by each replica); more wait.
        max_tokens: first length of a slot in tokens, prompt included. Slots grow on demand; null starts from what
            the first requests need.
        precision: dtype of weights and keys and values. `auto` takes bfloat16 where the device is faster with it.
        device: `auto` takes the GPU when there is one.

    Raises:
        ConfigError, BackendError: options that cannot be; a model that cannot be loaded or run.
    """
    if replicas < 0 or cpus < 1 or max_restarts < 0 or stuck_s <= 0 or start_timeout_s <= 0:
        raise ConfigError(
            "rollout.backend: replicas and max_restarts must not be negative, cpus at least 1, stuck_s and "
            f"start_timeout_s positive; got {replicas}, {max_restarts}, {cpus}, {stuck_s} and {start_timeout_s}"
        )
    engine: _Engine = {"max_slots": max_slots, "max_tokens": max_tokens, "precision": precision, "device": device}
    if not replicas:
        return LocalRolloutBackend(model=model, seed=seed, **engine)
    if executor is None:
        raise ConfigError(
            f"rollout.backend.replicas is {replicas}, but cluster.executor starts no processes; set it to local or ray"
        )
    return ReplicatedBackend(
        model=model,
        seed=seed,
        executor=executor,
        replicas=replicas,
        cpus=cpus,
        bounds=Bounds(start_s=start_timeout_s, silence_s=stuck_s, restarts=max_restarts),
        options=engine,
    )
