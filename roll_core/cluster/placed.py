"""What a placement is solved from, and what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roll_core.cluster.budget import Device
from roll_core.cluster.memory import Memory, RolloutLoad, TrainLoad
from roll_core.cluster.seats import SeatPlan
from roll_core.cluster.spec import Seat

Process = tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run needs devices for."""

    train: TrainLoad
    rollout: RolloutLoad
    prompts: int
    """Groups of a step."""
    rollouts_per_update: int
    is_ahead: bool = False
    """Whether generation goes on while the trainer works, so that they cannot take turns on a device."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on one device in each phase of a step."""

    device: Device
    train: float
    rollout: float
    """With the KV cache of one longest rollout."""
    sync: float

    @property
    def peak(self) -> float:
        """The largest of the phases."""
        return max(self.train, self.rollout, self.sync)


@dataclass(frozen=True, slots=True)
class Placement:
    """A device map that fits."""

    layout: Literal["colocate", "apart"]
    train: tuple[Process, ...]
    """Devices of each trainer process; one each."""
    rollout: tuple[Process, ...]
    """Devices of each engine."""
    tensor_parallel: int
    """Of the trainer."""
    train_memory: Memory
    """Of one trainer process."""
    usage: tuple[Usage, ...]
    concurrent: int
    """Longest rollouts that one engine's KV cache holds at once, on its smallest device."""
    kv_bytes: float
    """KV cache of one device of an engine."""
    shares: tuple[float, ...]
    """Of each engine: the share of its devices' memory that it may take."""
    engine_parked: float
    """Bytes of an engine's weights that wait in the machine's memory, a device, while the trainer has the device."""
    warnings: tuple[str, ...]

    @property
    def data_parallel(self) -> int:
        """Trainer groups that see different data."""
        return len(self.train) // self.tensor_parallel

    def seat_plan(self, devices: Sequence[Device]) -> SeatPlan:
        """Who sits where, for an executor.

        Args:
            devices: all that it was solved for; those of machines that nobody uses are left out.
        """
        used = {device.node for process in (*self.train, *self.rollout) for device in process}
        engines = zip(self.rollout, self.shares, strict=True)
        return SeatPlan(
            tuple(device for device in devices if device.node in used),
            {
                "train": tuple(_seat(process, None) for process in self.train),
                "rollout": tuple(_seat(process, share) for process, share in engines),
            },
        )


def _seat(process: Process, memory_share: float | None) -> Seat:
    return Seat(process[0].node, tuple(device.index for device in process), memory_share)
