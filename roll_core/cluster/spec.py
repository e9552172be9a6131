"""What the processes of one role are, and what starts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from roll_core.errors import ConfigError

if TYPE_CHECKING:
    from roll_core.cluster.group import WorkerGroup
    from roll_core.cluster.reference import Reference, Transfers


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The processes of one role.

    The worker object is made by `factory(**kwargs, **per_rank[rank])` in the worker's process. It lives on one thread
    with an event loop: plain methods run there one after the other, in the order they were called; coroutine methods
    run there many at once. A method `close` is called before an orderly end.

    Raises:
        ConfigError: a count or a share that cannot be.
    """

    role: str
    """"actor", "rollout" ..."""
    factory: str
    """"module:attr"; the result is the worker object. May be a coroutine function."""
    count: int
    """Processes: ranks of a process group, or replicas."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the factory, the same for all. Must pickle."""
    per_rank: Sequence[Mapping[str, Any]] | None = None
    """Further arguments, one mapping a process."""
    gpus: float = 0.0
    """Devices of one process; a fraction shares one device."""
    cpus: float = 1.0
    """Processor cores of one process."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that are set before the process starts."""
    is_restartable: bool = False
    """Whether processes may be replaced one by one (replicas). Others are ranks of one process group: they are given
    `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`, and end together."""
    share_with: str = ""
    """A role started earlier whose devices these processes use too: they see the devices of its processes (in equal
    parts, in order) and reserve none of their own."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"role '{self.role}': count must be at least 1, got {self.count}")
        if self.per_rank is not None and len(self.per_rank) != self.count:
            raise ConfigError(
                f"role '{self.role}': per_rank has {len(self.per_rank)} entries for {self.count} processes"
            )
        if self.gpus < 0 or self.cpus < 0:
            raise ConfigError(f"role '{self.role}': gpus and cpus must not be negative")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ConfigError(f"role '{self.role}': gpus must be a whole number above 1, got {self.gpus}")
        if self.share_with and self.gpus:
            raise ConfigError(f"role '{self.role}' uses the devices of '{self.share_with}', so gpus must be 0")

    def arguments(self, index: int) -> dict[str, Any]:
        """Keyword arguments of the factory for one process."""
        own = self.per_rank[index] if self.per_rank is not None else {}
        return {**self.kwargs, **own}

    def resources(self) -> dict[str, float]:
        """What one process reserves, by Ray's names."""
        return {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount}


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker as the driver sees it."""

    role: str
    index: int
    is_alive: bool
    pid: int
    node: str
    """Name or address of its machine."""
    busy_s: float | None
    """Seconds since its oldest unanswered call; None when it is idle."""
    busy_with: str
    """That call: its method, and what it is for."""
    queued: int
    """Unanswered calls."""
    rss_bytes: int | None
    """Resident memory; None when it cannot be read."""

    def render(self) -> str:
        """One line for people."""
        state = (
            "idle" if self.busy_s is None else f"{self.busy_with} for {self.busy_s:.1f} s ({self.queued} unanswered)"
        )
        memory = "" if self.rss_bytes is None else f", {self.rss_bytes / 2**30:.2f} GiB"
        return f"{self.role}[{self.index}] pid {self.pid} on {self.node}: {state if self.is_alive else 'lost'}{memory}"


class Executor(Protocol):
    """Starts worker groups. `LocalExecutor` and `RayExecutor` differ in where the processes are and in nothing else."""

    @property
    def name(self) -> str:
        """Either "local" or "ray"."""
        ...

    @property
    def transfers(self) -> Transfers:
        """Bytes and seconds of everything that was sent and received, by stage."""
        ...

    def start(self, spec: WorkerSpec, *, timeout_s: float) -> WorkerGroup:
        """Start the processes of a role and build their objects.

        Every process proves that it has the driver's plugins and versions before anything is built in it.

        Raises:
            PlacementError: there is no room for it within the bound.
            PluginError: a worker's plugins or versions differ.
            WorkerLost: a process ended while starting.
            Stuck: not ready within `timeout_s` seconds; with the stacks.
        """
        ...

    def put(self, value: Any) -> Reference:
        """Make `value` ready to travel once and be named in many calls; give it up with `Reference.release`."""
        ...

    def close(self) -> None:
        """End every group; no process is left."""
        ...
