"""What the processes of one role are, and what starts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from roll_core.errors import ConfigError

if TYPE_CHECKING:
    from roll_core.cluster.group import WorkerGroup
    from roll_core.cluster.reference import Reference, Transfers


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one process in a plan, by the plan's numbers.

    Raises:
        ConfigError: no device, a negative number, or one device twice.
    """

    machine: int
    """Number of the machine."""
    devices: tuple[int, ...]
    """Numbers of its devices that the process sees, and no others."""
    memory_share: float | None = field(default=None, compare=False)
    """Share of each device's memory that the process may take; None where nobody says."""

    def __post_init__(self) -> None:
        if not self.devices or min(self.machine, *self.devices) < 0 or len(set(self.devices)) < len(self.devices):
            raise ConfigError(f"a seat has one or more different devices of one machine, got {self}")

    @property
    def name(self) -> str:
        """Written "machine:device,device"."""
        return f"{self.machine}:{','.join(map(str, self.devices))}"


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
    seats: tuple[Seat, ...] | None = None
    """Where the processes sit, one seat each, as `Executor.seats` gives them. The devices of a plan are reserved for
    the whole run, so several roles may have seats on the same ones and take turns. None: anywhere with room."""

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
        self._check_seats()

    def _check_seats(self) -> None:
        if self.seats is None:
            return
        if self.share_with:
            raise ConfigError(f"role '{self.role}' has seats, so it cannot share those of '{self.share_with}' too")
        if len(self.seats) != self.count:
            raise ConfigError(f"role '{self.role}' has {len(self.seats)} seats for {self.count} processes")
        wrong = [seat.name for seat in self.seats if self.gpus not in (0, len(seat.devices))]
        if wrong:
            raise ConfigError(f"role '{self.role}': gpus is {self.gpus:g}, but its seats are {', '.join(wrong)}")

    def arguments(self, index: int) -> dict[str, Any]:
        """Keyword arguments of the factory for one process."""
        own = self.per_rank[index] if self.per_rank is not None else {}
        return {**self.kwargs, **own}

    def resources(self) -> dict[str, float]:
        """What one process reserves, by Ray's names. The devices of seats are reserved already."""
        gpus = self.gpus if self.seats is None else 0.0
        return {name: amount for name, amount in (("CPU", self.cpus), ("GPU", gpus)) if amount}


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
    devices: tuple[str, ...] = ()
    """Names of the devices it sees, as `CUDA_VISIBLE_DEVICES` has them."""

    def render(self) -> str:
        """One line for people."""
        state = (
            "idle" if self.busy_s is None else f"{self.busy_with} for {self.busy_s:.1f} s ({self.queued} unanswered)"
        )
        memory = "" if self.rss_bytes is None else f", {self.rss_bytes / 2**30:.2f} GiB"
        place = f"{self.node}{' devices ' + ','.join(self.devices) if self.devices else ''}"
        return f"{self.role}[{self.index}] pid {self.pid} on {place}: {state if self.is_alive else 'lost'}{memory}"


@runtime_checkable
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

    def seats(self, role: str) -> tuple[Seat, ...] | None:
        """What the run's plan gives a role ("train", "rollout"), one seat a process; None where nothing is planned."""
        ...

    def health(self) -> list[WorkerHealth]:
        """Every worker of every group as the driver sees it. Asks nothing of the workers themselves."""
        ...

    def stacks(self) -> dict[str, str]:
        """Stacks of every worker that owes an answer, by name ("actor[1]"). Takes seconds."""
        ...

    def break_off(self, error: BaseException) -> None:
        """Let every unanswered call of every group fail with `error`, so that a thread that waits for it goes on.

        For a hang: the workers themselves may stay where they are until they are closed.
        """
        ...

    def start(self, spec: WorkerSpec, *, timeout_s: float) -> WorkerGroup:
        """Start the processes of a role and build their objects.

        Every process proves that it has the driver's plugins and versions before anything is built in it.

        Raises:
            ConfigError: a seat is not in the plan.
            PlacementError: there is no room for it within the bound, or its machine is gone.
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
