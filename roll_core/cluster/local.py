"""Worker groups as child processes of the driver, on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from roll_core.cluster.budget import names_of
from roll_core.cluster.deadlines import Deadlines
from roll_core.cluster.devices import DevicePool, device_env, visible_devices
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.group import WorkerGroup, close_all
from roll_core.cluster.link import Boot
from roll_core.cluster.local_link import LocalLink
from roll_core.cluster.nvml import device_memory
from roll_core.cluster.proof import choice_of
from roll_core.cluster.reference import Clock, Reference, Transfers, pack
from roll_core.cluster.seats import NO_PLAN, SeatPlan, check_memory, granted
from roll_core.cluster.spec import Seat, WorkerHealth, WorkerSpec
from roll_core.plugin.host import Host


class LocalExecutor:
    """Starts fresh child processes of this machine.

    Values travel as they do on Ray (packed, arrays read-only on arrival), so that what works here works there. The
    kernel ends every worker, with its children, when the driver ends, however that happens.

    Args:
        host: the driver's plugins, which every worker must have too; None proves versions only.
        logs: folder for what workers print and for their stacks; None keeps them in a temporary folder until `close`.
        devices: names of the devices to share out; None takes those this process may use.
        seats: devices and seats of the run, all on this machine; a mapping of seats by role names the devices itself.
            What is not planned is shared out to roles without seats.

    Raises:
        PlacementError: the plan asks for more than this machine has.
    """

    name = "local"

    def __init__(
        self,
        host: Host | None = None,
        *,
        logs: Path | None = None,
        devices: Sequence[str] | None = None,
        seats: Mapping[str, Sequence[Seat]] | SeatPlan = NO_PLAN,
    ) -> None:
        names = visible_devices() if devices is None else tuple(devices)
        self._plan = seats if isinstance(seats, SeatPlan) else SeatPlan.of_seats(seats)
        self._planned = _on_this_machine(self._plan, names)
        self._pool = DevicePool(names)
        self._pool.withhold(self._planned.values())
        self.transfers = Transfers()
        self._host = host
        self._plugins = choice_of(host)
        self._own_logs = logs is None
        self.logs = Path(tempfile.mkdtemp(prefix="roll-workers-")) if logs is None else logs
        self.logs.mkdir(parents=True, exist_ok=True)
        self._taken: dict[str, list[tuple[str, ...]]] = {}
        self._amounts: dict[str, float] = {}
        self._groups: list[WorkerGroup] = []
        self._deadlines = Deadlines()

    def seats(self, role: str) -> tuple[Seat, ...] | None:
        """See `Executor.seats`."""
        return self._plan.seats.get(role)

    def health(self) -> list[WorkerHealth]:
        """See `Executor.health`."""
        return [worker for group in list(self._groups) for worker in group.health()]

    def stacks(self) -> dict[str, str]:
        """See `Executor.stacks`."""
        return {name: text for group in list(self._groups) for name, text in group.stacks().items()}

    def break_off(self, error: BaseException) -> None:
        """See `Executor.break_off`."""
        for group in list(self._groups):
            group.break_off(error)

    def start(self, spec: WorkerSpec, *, timeout_s: float) -> WorkerGroup:
        """See `Executor.start`."""
        if any(group.role == spec.role for group in self._groups):
            raise PlacementError(f"role '{spec.role}' is running already; close its group first")
        devices = self._devices(spec)
        group = WorkerGroup(
            spec,
            lambda index: LocalLink(self._boot(spec, index), _environment(spec, devices[index]), self.transfers),
            host=self._host,
            transfers=self.transfers,
            deadlines=self._deadlines,
            on_close=lambda: self._give_back(group),
        )
        self._groups.append(group)
        group.start(timeout_s)
        return group

    def put(self, value: Any) -> Reference:
        """See `Executor.put`."""
        clock = Clock()
        packed = pack(value)
        parts = [bytes(part) for part in packed.parts]
        self.transfers.sent("put", 0, clock())
        return Reference(parts, packed.nbytes)

    def close(self) -> None:
        """See `Executor.close`."""
        close_all(self._groups)
        self._deadlines.close()
        if self._own_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _boot(self, spec: WorkerSpec, index: int) -> Boot:
        stem = self.logs.resolve() / f"{spec.role}-{index}"
        return Boot(spec.role, index, f"{stem}.log", f"{stem}.stacks", self._plugins, tuple(sys.path))

    def _devices(self, spec: WorkerSpec) -> list[tuple[str, ...]]:
        """Devices of each process: its own, or those of the processes it shares with."""
        if spec.share_with:
            theirs = self._taken.get(spec.share_with)
            if theirs is None:
                raise PlacementError(f"role '{spec.role}' shares with '{spec.share_with}', which was not started")
            return shared(theirs, spec)
        if spec.seats is not None:
            seats = self._plan.check(spec)
            self._amounts[spec.role] = 0.0
            self._taken[spec.role] = [tuple(self._planned[index] for index in seat.devices) for seat in seats]
            return self._taken[spec.role]
        taken: list[tuple[str, ...]] = []
        try:
            for index in range(spec.count):
                taken.append(self._pool.take(spec.gpus, f"{spec.role}[{index}]") if spec.gpus else ())
        except PlacementError:
            for names in taken:
                self._pool.give_back(names, spec.gpus)
            raise
        self._taken[spec.role], self._amounts[spec.role] = taken, spec.gpus
        return taken

    def _give_back(self, group: WorkerGroup) -> None:
        if group in self._groups:
            self._groups.remove(group)
            taken, amount = self._taken.pop(group.role, []), self._amounts.pop(group.role, 0.0)
            for names in taken if amount else ():
                self._pool.give_back(names, amount)


def _on_this_machine(plan: SeatPlan, names: Sequence[str]) -> dict[int, str]:
    """Names of the planned devices by their numbers."""
    machines = plan.machines
    if len(machines) > 1:
        raise PlacementError(
            f"the plan uses {len(machines)} machines ({names_of(plan.devices)}); the local executor has this one. Use "
            "executor: ray, or a cluster.gpus of one machine"
        )
    found: dict[int, str] = {}
    for planned in machines.values():
        found = granted(planned, names, "this machine")
        check_memory(planned, device_memory(names), found, "this machine")
    return found


def shared(theirs: Sequence[tuple[str, ...]], spec: WorkerSpec) -> list[tuple[str, ...]]:
    """What each process sees of the devices of another role's processes: equal parts, in order.

    Raises:
        PlacementError: the parts would not be equal.
    """
    each, rest = divmod(len(theirs), spec.count)
    if not each and not spec.count % len(theirs):
        per = spec.count // len(theirs)
        return [theirs[index // per] for index in range(spec.count)]
    if rest or not each:
        raise PlacementError(
            f"the {spec.count} processes of role '{spec.role}' cannot share the {len(theirs)} of "
            f"'{spec.share_with}' in equal parts"
        )
    parts = [theirs[index * each : (index + 1) * each] for index in range(spec.count)]
    return [tuple(name for names in part for name in names) for part in parts]


def _environment(spec: WorkerSpec, devices: tuple[str, ...]) -> dict[str, str]:
    threads = str(max(int(spec.cpus), 1))
    defaults = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": threads, "PYTHONFAULTHANDLER": "1"}
    return {**defaults, **os.environ, "PYTHONUNBUFFERED": "1", **device_env(devices), **spec.env}
