"""The devices of a run and who sits on them: what executors take from a solved or written placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from roll_core.cluster.budget import Device, gigabytes, names_of
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.spec import Executor, Seat, WorkerSpec
from roll_core.errors import ConfigError

MEMORY_TOLERANCE = 0.95
"""What a device may have of the planned memory: a device sold as 24 GB has a little less, or error correction takes
some of it."""


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """Devices by the plan's numbers, all of them reserved for the run, and the seats of each role on them."""

    devices: tuple[Device, ...]
    """Every planned device of the machines in use; memory 0 where nobody said."""
    seats: Mapping[str, tuple[Seat, ...]]

    @classmethod
    def of_seats(cls, seats: Mapping[str, Sequence[Seat]]) -> Self:
        """The devices the seats name, of any memory."""
        places = {(seat.machine, index) for own in seats.values() for seat in own for index in seat.devices}
        return cls(
            tuple(Device(machine, index, 0) for machine, index in sorted(places)),
            {role: tuple(own) for role, own in seats.items()},
        )

    @property
    def machines(self) -> dict[int, tuple[Device, ...]]:
        """Devices by the number of their machine."""
        found: dict[int, list[Device]] = {}
        for device in sorted(self.devices):
            found.setdefault(device.node, []).append(device)
        return {machine: tuple(devices) for machine, devices in found.items()}

    def check(self, spec: WorkerSpec) -> tuple[Seat, ...]:
        """The seats of a role, each of which is in the plan.

        Raises:
            ConfigError: one is not.
        """
        there = {(device.node, device.index) for device in self.devices}
        for seat in spec.seats or ():
            missing = [f"{seat.machine}:{index}" for index in seat.devices if (seat.machine, index) not in there]
            if missing:
                raise ConfigError(
                    f"role '{spec.role}' has a seat on {', '.join(missing)}; planned are {names_of(self.devices)}"
                )
        return spec.seats or ()


NO_PLAN = SeatPlan((), {})
"""Nothing is planned."""


def granted(planned: Sequence[Device], names: Sequence[str], where: str) -> dict[int, str]:
    """Names of a machine's planned devices, by their numbers.

    Args:
        planned: devices of one planned machine.
        names: what the machine gives, in order.
        where: the machine, for the message.

    Raises:
        PlacementError: the machine gives too few.
    """
    highest = max(device.index for device in planned)
    if highest >= len(names):
        raise PlacementError(
            f"the plan uses devices {names_of(planned)}; {where} has {len(names) or 'none'} for this run"
            f"{': ' + ', '.join(names) if names else ''}"
        )
    return {device.index: names[device.index] for device in planned}


def check_memory(planned: Sequence[Device], memory: Mapping[str, int], names: Mapping[int, str], where: str) -> None:
    """Compare planned with real memory, where that could be read.

    Raises:
        PlacementError: a device has less than planned.
    """
    for device in planned:
        real = memory.get(names[device.index])
        if real is not None and real < MEMORY_TOLERANCE * device.memory:
            raise PlacementError(
                f"the plan gives device {device.name} {gigabytes(device.memory)} GB; device {names[device.index]} of "
                f"{where} has {gigabytes(real)} GB. Write what is there as cluster.gpus"
            )


def share_devices(executor: Executor | None) -> bool:
    """Whether trainer and rollout engines have devices in common, and so take turns on them."""
    if executor is None:
        return False
    used = [
        {(seat.machine, index) for seat in executor.seats(role) or () for index in seat.devices}
        for role in ("train", "rollout")
    ]
    return bool(used[0] & used[1])
