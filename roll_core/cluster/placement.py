"""Who gets which devices: solved from a budget and wishes, or checked when written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from roll_core.cluster.budget import Device, gigabytes, names_of, parse_process
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.memory import (
    RESERVE,
    Memory,
    RolloutLoad,
    TrainLoad,
    kv_per_rollout,
    rollout_weights,
    sharded_weights,
    train_memory,
)
from roll_core.cluster.seats import SeatPlan
from roll_core.cluster.spec import Seat
from roll_core.config.cluster import ClusterConfig

Process = tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run needs devices for."""

    train: TrainLoad
    rollout: RolloutLoad
    prompts: int
    """Groups of a step."""
    rollouts_per_update: int


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
    parked_bytes: float
    """What one trainer process leaves in its machine's memory: always, or while the engines have its device."""
    warnings: tuple[str, ...]

    def seat_plan(self, devices: Sequence[Device]) -> SeatPlan:
        """Who sits where, for an executor.

        Args:
            devices: all that it was solved for; those of machines that nobody uses are left out.
        """
        roles = {"train": self.train, "rollout": self.rollout}
        used = {device.node for processes in roles.values() for process in processes for device in process}
        return SeatPlan(
            tuple(device for device in devices if device.node in used),
            {role: tuple(_seat(process) for process in processes) for role, processes in roles.items()},
        )

    @property
    def data_parallel(self) -> int:
        """Trainer groups that see different data."""
        return len(self.train) // self.tensor_parallel


def _seat(process: Process) -> Seat:
    return Seat(process[0].node, tuple(device.index for device in process))


def solve(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> Placement:
    """Find a placement.

    Colocated placements use every device for both. Apart, the trainer gets the devices with the most memory, as near to
    half of them as it takes to fit, and the rest generate. Engines take the fewest devices that hold the model and the
    KV cache of a group, or of one rollout where nothing holds more.

    Raises:
        PlacementError: nothing fits; says for every layout what was too large, by how much, and what would help.
    """
    if wishes.map is not None:
        return _by_hand(devices, wishes, demand)
    reasons: list[str] = []
    for layout in ("colocate", "apart"):
        if wishes.layout not in ("auto", layout):
            continue
        for train, rollout_devices in _splits(layout, devices, wishes):
            found = _complete(layout, train, rollout_devices, wishes, demand)
            if isinstance(found, Placement):
                return found
            reasons.append(f"{layout}, {len(train)} devices to train: {found}")
    shown = "\n".join(f"  {reason}" for reason in reasons[:3]) or "  apart needs at least two devices"
    raise PlacementError(f"no placement fits {names_of(devices)}:\n{shown}\n{_advice(devices, wishes, demand)}")


def _splits(
    layout: str, devices: Sequence[Device], wishes: ClusterConfig
) -> Iterator[tuple[list[Device], list[Device]]]:
    """Devices of the trainer and of generation, the best first."""
    tensor_parallel = wishes.train.tensor_parallel or 1
    order = sorted(devices, key=lambda device: (-device.memory, device.node, device.index))
    if layout == "colocate":
        count = wishes.train.gpus or len(order) - len(order) % tensor_parallel
        if 0 < count <= len(order):
            yield order[:count], order[:count]
        return
    counts = [wishes.train.gpus] if wishes.train.gpus else range(tensor_parallel, len(order), tensor_parallel)
    half = len(order) / 2
    for count in sorted((n for n in counts if n < len(order)), key=lambda n: (abs(n - half), n)):
        yield order[:count], order[count:]


def _complete(
    layout: str, train: Sequence[Device], free: Sequence[Device], wishes: ClusterConfig, demand: Demand
) -> Placement | str:
    """Give engines their devices and check memory; a text says why it does not fit."""
    model, reason = demand.rollout.model, ""
    best: Placement | None = None
    sizes = [wishes.rollout.tensor_parallel] if wishes.rollout.tensor_parallel else [1, 2, 4, 8, 16]
    for size in sizes:
        if model.heads % size:
            reason = reason or f"{model.heads} attention heads cannot be divided over {size} devices"
            continue
        engines = _engines(free, size, wishes.rollout.replicas)
        if not engines:
            wanted = wishes.rollout.replicas or 1
            reason = reason or f"no room for {wanted} engines of {size} devices, each on one machine"
            continue
        found = check(layout, [(device,) for device in train], engines, wishes, demand)
        if isinstance(found, str):
            reason = found
        elif found.concurrent >= demand.rollout.group_size:
            return found
        elif best is None or found.concurrent * len(found.rollout) > best.concurrent * len(best.rollout):
            best = found
    return best or reason


def _engines(devices: Sequence[Device], size: int, replicas: int | None) -> list[Process]:
    by_node: dict[int, list[Device]] = {}
    for device in sorted(devices):
        by_node.setdefault(device.node, []).append(device)
    engines = [
        tuple(own[start : start + size]) for own in by_node.values() for start in range(0, len(own) - size + 1, size)
    ]
    return engines if replicas is None else engines[:replicas] if len(engines) >= replicas else []


def check(
    layout: str, train: Sequence[Process], engines: Sequence[Process], wishes: ClusterConfig, demand: Demand
) -> Placement | str:
    """The memory of a placement; a text names the device that has too little, and for what."""
    tensor_parallel = wishes.train.tensor_parallel or 1
    problem = _parallel_problem(train, tensor_parallel, demand)
    if problem:
        return problem
    trainer = train_memory(demand.train, len(train), tensor_parallel, cpu_offload=bool(wishes.train.cpu_offload))
    shards = 0.0 if wishes.train.cpu_offload else sharded_weights(demand.train, len(train))
    trained = {device for process in train for device in process}
    generated = {device: len(process) for process in engines for device in process}
    usage: list[Usage] = []
    room: list[float] = []
    for device in sorted(trained | set(generated)):
        own = trainer.total if device in trained else 0.0
        size = generated.get(device, 0)
        weights = rollout_weights(demand.rollout.model, size) if size else 0.0
        least = weights + kv_per_rollout(demand.rollout, size) if size else 0.0
        stays = own if not wishes.offload else 0.0
        phases = Usage(
            device,
            train=RESERVE + own + (least if size and own and not wishes.offload else 0.0),
            rollout=RESERVE + least + stays,
            sync=RESERVE + weights + (max(shards, stays) if own else 0.0),
        )
        limit = device.memory * wishes.memory_fraction
        if phases.peak > limit:
            return _too_large(phases, limit, trainer, least)
        usage.append(phases)
        if size:
            room.append((limit - RESERVE - weights - stays) / kv_per_rollout(demand.rollout, size))
    concurrent = int(min(room))
    smallest = min(generated, key=lambda device: device.memory)
    kv_bytes = concurrent * kv_per_rollout(demand.rollout, generated[smallest])
    return Placement(
        "colocate" if layout == "colocate" else "apart",
        tuple(train),
        tuple(engines),
        tensor_parallel,
        trainer,
        tuple(usage),
        concurrent,
        kv_bytes,
        trainer.host or (trainer.parked if wishes.offload and trained & set(generated) else 0.0),
        tuple(_warnings(train, engines, tensor_parallel, concurrent, demand)),
    )


def _parallel_problem(train: Sequence[Process], tensor_parallel: int, demand: Demand) -> str:
    heads = demand.train.actor.heads
    if len(train) % tensor_parallel:
        return f"{len(train)} trainer processes cannot be divided into groups of tensor_parallel {tensor_parallel}"
    if heads % tensor_parallel:
        return f"{heads} attention heads cannot be divided by train.tensor_parallel {tensor_parallel}"
    groups = [train[start : start + tensor_parallel] for start in range(0, len(train), tensor_parallel)]
    split = [group for group in groups if len({device.node for process in group for device in process}) > 1]
    if split:
        names = names_of(device for process in split[0] for device in process)
        return f"devices {names} would share layers across machines; choose a smaller train.tensor_parallel"
    return ""


def _warnings(
    train: Sequence[Process], engines: Sequence[Process], tensor_parallel: int, concurrent: int, demand: Demand
) -> Iterator[str]:
    ranks = len(train) // tensor_parallel
    if demand.rollouts_per_update < ranks:
        yield f"an update has {demand.rollouts_per_update} rollouts for {ranks} data-parallel ranks; some have no work"
    if demand.prompts < len(engines):
        yield f"a step has {demand.prompts} prompts for {len(engines)} engines; some have no work"
    if concurrent < demand.rollout.group_size:
        yield (
            f"an engine's KV cache holds {concurrent} of the longest rollouts at once, fewer than a group of "
            f"{demand.rollout.group_size}"
        )
    memories = {device.memory for process in train for device in process}
    if len(memories) > 1:
        yield "the trainer's devices differ in memory; every rank holds as much as the smallest can"


def _too_large(usage: Usage, limit: float, trainer: Memory, engine: float) -> str:
    phase = max(("train", "rollout", "sync"), key=lambda name: getattr(usage, name))
    trained = "; ".join(
        f"{role}: {', '.join(f'{name} {gigabytes(amount)}' for name, amount in terms.items())}"
        for role, terms in trainer.terms.items()
    )
    parts = {
        "train": trained,
        "rollout": f"engine with one rollout's KV cache {gigabytes(engine)}",
        "sync": "both weights",
    }
    return (
        f"device {usage.device.name} would need {gigabytes(getattr(usage, phase))} GB to {phase} ({parts[phase]}); "
        f"{gigabytes(limit)} of its {gigabytes(usage.device.memory)} GB may be planned for"
    )


def _advice(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> str:
    """How many such devices would do, and what makes the trainer smaller."""
    limit = min(device.memory for device in devices) * wishes.memory_fraction - RESERVE
    tensor_parallel, load = wishes.train.tensor_parallel or 1, demand.train

    def fits(count: int) -> bool:
        memory = train_memory(load, count, tensor_parallel, cpu_offload=bool(wishes.train.cpu_offload))
        return memory.total <= limit

    enough = next((n for n in range(tensor_parallel, 4097, tensor_parallel) if fits(n)), None)
    hints = []
    if not load.is_checkpointed:
        hints.append("gradient checkpointing")
    hints.append("a smaller micro_tokens")
    if not wishes.train.cpu_offload:
        hints.append("cluster.train.cpu_offload")
    if load.lora_rank is None:
        hints.append("model.lora")
    count = f"Training alone would fit {enough} such devices. " if enough else "No number of such devices fits. "
    return f"{count}What makes it smaller: {', '.join(hints)}"


def _by_hand(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> Placement:
    """Check a hand-written map.

    Raises:
        ConfigError, PlacementError: it names devices that are not there or uses one twice in a role, or does not fit.
    """
    written = wishes.map or {}
    roles = {
        role: [parse_process(text, devices, role) for text in written.get(role, ())] for role in ("train", "rollout")
    }
    for role, processes in roles.items():
        used = [device for process in processes for device in process]
        twice = {device for device in used if used.count(device) > 1}
        if twice or not used:
            what = f"uses {names_of(twice)} twice" if twice else "has no process"
            raise PlacementError(f"cluster.map.{role} {what}")
    wide = [process for process in roles["train"] if len(process) > 1]
    if wide:
        raise PlacementError(f"cluster.map.train: a trainer process has one device, got {names_of(wide[0])}")
    trained = {device for process in roles["train"] for device in process}
    shares = any(device in trained for process in roles["rollout"] for device in process)
    found = check("colocate" if shares else "apart", roles["train"], roles["rollout"], wishes, demand)
    if isinstance(found, str):
        raise PlacementError(f"cluster.map does not fit: {found}")
    return found
