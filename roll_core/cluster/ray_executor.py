"""Worker groups as actors of a Ray cluster."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ray

from roll_core.cluster.budget import Device
from roll_core.cluster.deadlines import Deadlines
from roll_core.cluster.devices import device_env
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.group import WorkerGroup, close_all
from roll_core.cluster.link import Boot
from roll_core.cluster.local import shared
from roll_core.cluster.proof import choice_of
from roll_core.cluster.ray_link import RayLink, for_ray
from roll_core.cluster.ray_machines import Machines, detect
from roll_core.cluster.ray_nodes import Nodes, Places, join_cluster
from roll_core.cluster.ray_worker import RayWorker
from roll_core.cluster.reference import Clock, Reference, Transfers, pack
from roll_core.cluster.seats import NO_PLAN, SeatPlan
from roll_core.cluster.spec import Seat, WorkerHealth, WorkerSpec
from roll_core.plugin.host import Host

_MANY = 100_000


class RayExecutor:
    """Starts actors in placement groups. Nothing is detached: everything ends with the driver.

    Ranks of a process group share one placement group, packed onto as few machines as possible; replicas have one each
    and may come up again on any machine with room; both sit where a plan says, if there is one. Actors never restart by
    themselves.

    Args:
        host: the driver's plugins, which every worker must have too; None proves versions only.
        address: of a running cluster ("auto", "host:port"); None uses a Ray this process is connected to already, then
            `RAY_ADDRESS`, then starts one on this machine.
        logs: folder for what workers print and for their stacks, on each worker's machine under the same name (so a
            shared file system gathers them); None keeps them in temporary folders until `close`.
        placement_timeout_s: how long to wait for room in the cluster.
        seats: seats by role, on devices that are reserved at once; see also `adopt`.

    Raises:
        PlacementError: nobody answers at the address, or the cluster does not have the devices of the seats.
    """

    name = "ray"

    def __init__(
        self,
        host: Host | None = None,
        *,
        address: str | None = None,
        logs: Path | None = None,
        placement_timeout_s: float = 60.0,
        seats: Mapping[str, Sequence[Seat]] | None = None,
    ) -> None:
        self.transfers = Transfers()
        self._host = host
        self._plugins = choice_of(host)
        self._own_logs = logs is None
        self.logs = Path(tempfile.mkdtemp(prefix="roll-workers-")) if logs is None else logs
        self._placement_timeout_s = placement_timeout_s
        self._deadlines = Deadlines()
        self._is_own_ray = not ray.is_initialized()
        if self._is_own_ray:
            join_cluster(address)
        self._nodes = Nodes()
        self._machines = Machines(NO_PLAN, placement_timeout_s)
        self._groups: dict[str, WorkerGroup] = {}
        self._places: dict[str, Places] = {}
        if seats is not None:
            try:
                self.adopt(SeatPlan.of_seats(seats))
            except BaseException:
                self.close()
                raise

    def devices(self) -> tuple[Device, ...]:
        """Every device of the cluster, as a budget.

        Raises:
            ConfigError: the memory of some cannot be read.
        """
        return detect()

    def adopt(self, plan: SeatPlan) -> None:
        """Find the machines of a plan in the cluster, and reserve its devices until `close`. At most once.

        Raises:
            PlacementError: the cluster has too little, or others hold it.
        """
        self._machines = Machines(plan, self._placement_timeout_s)
        self._machines.reserve()

    def seats(self, role: str) -> tuple[Seat, ...] | None:
        """See `Executor.seats`."""
        return self._machines.plan.seats.get(role)

    def health(self) -> list[WorkerHealth]:
        """See `Executor.health`."""
        return [worker for group in list(self._groups.values()) for worker in group.health()]

    def stacks(self) -> dict[str, str]:
        """See `Executor.stacks`."""
        return {name: text for group in list(self._groups.values()) for name, text in group.stacks().items()}

    def break_off(self, error: BaseException) -> None:
        """See `Executor.break_off`."""
        for group in list(self._groups.values()):
            group.break_off(error)

    def start(self, spec: WorkerSpec, *, timeout_s: float) -> WorkerGroup:
        """See `Executor.start`."""
        if spec.role in self._groups:
            raise PlacementError(f"role '{spec.role}' is running already; close its group first")
        started: set[int] = set()
        if not spec.share_with:
            pinned = [self._machines.seat(seat)[0] for seat in self._machines.plan.check(spec)]
            places = Places(spec, min(self._placement_timeout_s, timeout_s), pinned or None)
            places.reserve()
            self._places[spec.role] = places

        def launch(index: int) -> RayLink:
            if index in started and not spec.share_with:
                pinned = self._machines.seat(spec.seats[index])[0] if spec.seats else ""
                self._places[spec.role].renew(index, pinned)
            started.add(index)
            return self._link(spec, index)

        group = WorkerGroup(
            spec,
            launch,
            host=self._host,
            transfers=self.transfers,
            deadlines=self._deadlines,
            on_close=lambda: self._release(spec.role),
        )
        self._groups[spec.role] = group
        group.start(timeout_s)
        return group

    def put(self, value: Any) -> Reference:
        """See `Executor.put`."""
        clock = Clock()
        packed = pack(value)
        handle = ray.put(for_ray(packed.parts))
        self.transfers.sent("put", packed.nbytes, clock())
        return Reference(handle, packed.nbytes)

    def close(self) -> None:
        """See `Executor.close`. A Ray that was there before stays."""
        close_all(list(self._groups.values()))
        self._deadlines.close()
        if ray.is_initialized():
            self._machines.release()
            self._nodes.close(str(self.logs) if self._own_logs else "")
            if self._is_own_ray:
                ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _link(self, spec: WorkerSpec, index: int) -> RayLink:
        stem = self.logs.absolute() / f"{spec.role}-{index}"
        boot = Boot(spec.role, index, f"{stem}.log", f"{stem}.stacks", self._plugins, tuple(sys.path))
        place, devices = self._place(spec, index)
        seen = device_env(devices) if devices else {}
        threads = str(max(int(spec.cpus), 1))
        defaults = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
        options = {
            "num_cpus": 0 if spec.share_with else spec.cpus,
            "num_gpus": 0 if spec.seats else spec.gpus,
            "scheduling_strategy": place,
            "runtime_env": {"env_vars": {**defaults, **seen, **spec.env}},
            "max_concurrency": _MANY,
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        actor = ray.remote(**options)(RayWorker).remote(boot)
        return RayLink(boot, actor, seen, self._nodes, self.transfers)

    def _place(self, spec: WorkerSpec, index: int) -> tuple[Any, tuple[str, ...]]:
        """Where a process is scheduled, and the names of its devices where Ray does not say them."""
        if not spec.share_with:
            devices = self._machines.seat(spec.seats[index])[1] if spec.seats else ()
            return self._places[spec.role].strategy(index), devices
        lender = self._groups.get(spec.share_with)
        if lender is None or spec.share_with not in self._places:
            raise PlacementError(f"role '{spec.role}' shares with '{spec.share_with}', which holds no devices here")
        greetings = [lender.greeting(i) for i in range(lender.size)]
        ranks = shared([(str(i),) for i in range(lender.size)], spec)[index]
        nodes = sorted({greetings[int(i)].node for i in ranks})
        if len(nodes) > 1:
            raise PlacementError(
                f"{spec.role}[{index}] would share devices of several machines ({', '.join(nodes)}); one process "
                f"sees those of one machine. Use more processes of '{spec.role}'"
            )
        devices = tuple(dict.fromkeys(name for i in ranks for name in greetings[int(i)].devices))
        return self._places[spec.share_with].strategy(int(ranks[0])), devices

    def _release(self, role: str) -> None:
        self._groups.pop(role, None)
        places = self._places.pop(role, None)
        if places is not None:
            places.release()
