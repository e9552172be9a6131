"""Tries placements until one fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roll_core.cluster.budget import Device, gigabytes, names_of
from roll_core.cluster.memory import (
    RESERVE,
    Memory,
    kv_per_rollout,
    rollout_weights,
    train_memory,
)
from roll_core.cluster.placed import Demand, Placement, Process, Usage
from roll_core.config.cluster import ClusterConfig

ENGINE_SIZES = (1, 2, 4, 8, 16)
"""Devices of one engine that are tried."""


def search(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> Placement | list[str]:
    """The placement that fits best; colocated ones come first.

    Returns:
        The placement, or for every one tried why it does not fit.
    """
    reasons: list[str] = []
    for layout in ("colocate", "apart"):
        if wishes.layout not in ("auto", layout):
            continue
        if layout == "colocate" and takes_turns(wishes, demand):
            reasons.append("colocate: rollout.mode generates while the trainer works, so they cannot take turns")
            continue
        best = _best(layout, devices, wishes, demand, reasons)
        if best is not None:
            return best
    return reasons


def _best(
    layout: str, devices: Sequence[Device], wishes: ClusterConfig, demand: Demand, reasons: list[str]
) -> Placement | None:
    """Of what fits, the one nearest to even shares, where an idle device weighs as much as two in the wrong half."""
    splits = list(_splits(layout, devices, wishes))
    if not splits:
        reasons.append(f"{layout}: {_no_split(layout, devices, wishes)}")
    best: tuple[float, Placement] | None = None
    for train, free in splits:
        uneven = abs(len(train) - len(free)) / 2
        if best is not None and uneven >= best[0]:
            break  # the next ones are more uneven still
        found = _complete(layout, train, free, wishes, demand)
        if isinstance(found, str):
            reasons.append(f"{layout}, {len(train)} devices to train: {found}")
            continue
        cost = uneven + 2 * (len(devices) - len(found.usage))
        if best is None or cost < best[0]:
            best = cost, found
    return None if best is None else best[1]


def takes_turns(wishes: ClusterConfig, demand: Demand) -> bool:
    """Whether devices would be lent to and fro while both parties need them."""
    return demand.is_ahead and wishes.offload


def check(
    layout: str, train: Sequence[Process], engines: Sequence[Process], wishes: ClusterConfig, demand: Demand
) -> Placement | str:
    """The memory of a placement; a text names the device that has too little, and for what."""
    tensor_parallel = wishes.train.tensor_parallel or 1
    problem = _parallel_problem(train, tensor_parallel, demand)
    if problem:
        return problem
    trainer = train_memory(demand.train, len(train), tensor_parallel, cpu_offload=bool(wishes.train.cpu_offload))
    books = _Books(trainer, wishes, demand)
    trained = {device for process in train for device in process}
    generated = {device: len(process) for process in engines for device in process}
    usage: list[Usage] = []
    for device in sorted(trained | set(generated)):
        phases = books.usage(device, generated.get(device, 0), is_trained=device in trained)
        limit = device.memory * wishes.memory_fraction
        if phases.peak > limit:
            return _too_large(phases, limit, books, generated.get(device, 0))
        usage.append(phases)
    room = {device: books.room(device, size, is_trained=device in trained) for device, size in generated.items()}
    concurrent = int(min(room[device] / kv_per_rollout(demand.rollout, size) for device, size in generated.items()))
    smallest = min(generated, key=lambda device: room[device])
    return Placement(
        "colocate" if layout == "colocate" else "apart",
        tuple(train),
        tuple(engines),
        tensor_parallel,
        trainer,
        tuple(usage),
        concurrent,
        concurrent * kv_per_rollout(demand.rollout, generated[smallest]),
        tuple(min(books.share(device, is_trained=device in trained) for device in process) for process in engines),
        max(rollout_weights(demand.rollout.model, size) for size in generated.values())
        if wishes.offload and trained & set(generated)
        else 0.0,
        tuple(_warnings(train, engines, tensor_parallel, concurrent, demand)),
    )


@dataclass(frozen=True, slots=True)
class _Books:
    """Memory on one device.

    Where trainer and engine take turns, the engine leaves the device while the trainer works; the trainer's weights and
    optimiser stay while the engine works (under `cpu_offload` they are never there).
    """

    trainer: Memory
    wishes: ClusterConfig
    demand: Demand

    def engine(self, size: int) -> float:
        """Bytes of an engine with one rollout's KV cache on each of its devices; 0 devices: none."""
        if not size:
            return 0.0
        return rollout_weights(self.demand.rollout.model, size) + kv_per_rollout(self.demand.rollout, size)

    def usage(self, device: Device, size: int, *, is_trained: bool) -> Usage:
        """Bytes in each phase, on a device of an engine of so many (0: of none)."""
        own, stays = (self.trainer.total, self._stays()) if is_trained else (0.0, 0.0)
        base, engine = RESERVE * (bool(size) + is_trained), self.engine(size)
        actor = self.demand.train.actor
        return Usage(
            device,
            train=base + own + (engine if own and not self.wishes.offload else 0.0),
            rollout=base + engine + stays,
            sync=base
            + (rollout_weights(self.demand.rollout.model, size) if size else 0.0)
            + (stays + 2 * actor.vocabulary * actor.hidden if is_trained else 0.0),
        )

    def room(self, device: Device, size: int, *, is_trained: bool) -> float:
        """Bytes for an engine's KV cache."""
        stays = self._stays() + RESERVE if is_trained else 0.0
        weights = rollout_weights(self.demand.rollout.model, size)
        return device.memory * self.wishes.memory_fraction - RESERVE - weights - stays

    def share(self, device: Device, *, is_trained: bool) -> float:
        """Share of a device that an engine may take."""
        stays = self._stays() + RESERVE if is_trained else 0.0
        return (device.memory * self.wishes.memory_fraction - stays) / device.memory

    def _stays(self) -> float:
        """What the trainer keeps on a device while an engine works there."""
        return self.trainer.resident if self.wishes.offload else self.trainer.total


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


def _no_split(layout: str, devices: Sequence[Device], wishes: ClusterConfig) -> str:
    least = wishes.train.gpus or wishes.train.tensor_parallel or 1
    apart = "" if layout == "colocate" else ", and at least one more for generation"
    return f"the trainer needs {least} devices{apart}; there are {len(devices)}"


def _complete(
    layout: str, train: Sequence[Device], free: Sequence[Device], wishes: ClusterConfig, demand: Demand
) -> Placement | str:
    """Give engines their devices and check memory; a text says why it does not fit."""
    model, reason = demand.rollout.model, ""
    best: Placement | None = None
    sizes = [wishes.rollout.tensor_parallel] if wishes.rollout.tensor_parallel else ENGINE_SIZES
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


def _parallel_problem(train: Sequence[Process], tensor_parallel: int, demand: Demand) -> str:
    heads, copies = demand.train.actor.heads, demand.train.replicate
    if len(train) % tensor_parallel:
        return f"{len(train)} trainer processes cannot be divided into groups of tensor_parallel {tensor_parallel}"
    if len(train) % (tensor_parallel * copies):
        return f"{len(train)} trainer processes cannot hold {copies} copies of tensor_parallel {tensor_parallel}"
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


def _too_large(usage: Usage, limit: float, books: _Books, size: int) -> str:
    phase = max(("train", "rollout", "sync"), key=lambda name: getattr(usage, name))
    trained = "; ".join(
        f"{role}: {', '.join(f'{name} {gigabytes(amount)}' for name, amount in terms.items())}"
        for role, terms in books.trainer.terms.items()
    )
    parts = {
        "train": trained,
        "rollout": f"engine with one rollout's KV cache {gigabytes(books.engine(size))}",
        "sync": "both weights",
    }
    return (
        f"device {usage.device.name} would need {gigabytes(getattr(usage, phase))} GB to {phase} ({parts[phase]}); "
        f"{gigabytes(limit)} of its {gigabytes(usage.device.memory)} GB may be planned for"
    )
