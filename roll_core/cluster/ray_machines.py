"""The machines of a plan, found among those of a Ray cluster, with their devices reserved for the whole run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from roll_core.cluster.budget import Device, gigabytes, names_of, parse_budget
from roll_core.cluster.devices import visible_devices
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.nvml import device_memory
from roll_core.cluster.ray_nodes import NODE_ID, describe_node, is_node_alive, node_name
from roll_core.cluster.reference import Clock
from roll_core.cluster.seats import MEMORY_TOLERANCE, SeatPlan
from roll_core.cluster.spec import Seat
from roll_core.errors import ConfigError

MEMORY_LABEL = "roll-gpu-memory"
"""Label of a Ray node that says the memory of each of its devices, for instance "80GB", where it cannot be read."""
_PROBE_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A machine of the cluster that has devices."""

    node_id: str
    name: str
    gpus: int
    memory: int | None
    """Bytes of its smallest device; None when nobody could tell."""

    def render(self) -> str:
        """For messages."""
        size = "?" if self.memory is None else gigabytes(self.memory)
        return f"{self.name}: {self.gpus} x {size} GB"


class Machines:
    """Which machine of the cluster is which of the plan.

    A planned machine goes to the one that fits it most tightly: enough devices, enough memory in each, as little as
    possible beyond that. Among machines alike Ray chooses one that is free. Several planned machines may lie on one
    that has devices for all of them. Safe from any thread.

    Args:
        plan: devices by the plan's numbers.
        timeout_s: how long to wait for devices that others hold.
    """

    def __init__(self, plan: SeatPlan, timeout_s: float) -> None:
        self.plan = plan
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._groups: dict[int, PlacementGroup] = {}
        self._nodes: dict[int, str] = {}
        self._names: dict[int, dict[int, str]] = {}

    def reserve(self) -> None:
        """Find and reserve every machine; nothing stays reserved on failure.

        Raises:
            PlacementError: the cluster has too little, or others hold it; names what was planned and what there is.
        """
        try:
            if self.plan.devices:
                self._take(self.plan.machines)
        except BaseException:
            self.release()
            raise

    def seat(self, seat: Seat) -> tuple[str, tuple[str, ...]]:
        """Identifier of a seat's machine, and the names of its devices there.

        A machine that has left the cluster is replaced by a spare one where there is one.

        Raises:
            PlacementError: there is none.
        """
        with self._lock:
            node = self._nodes[seat.machine]
            if not is_node_alive(node):
                self._replace(seat.machine, node)
            names = self._names[seat.machine]
            return self._nodes[seat.machine], tuple(names[index] for index in seat.devices)

    def release(self) -> None:
        """Give everything back."""
        groups, self._groups = self._groups, {}
        for group in groups.values():
            remove_placement_group(group)

    def _replace(self, machine: int, gone: str) -> None:
        name = node_name(gone)
        reserved = self._groups.pop(machine, None)  # None where this was tried before, in vain
        if reserved is not None:
            remove_placement_group(reserved)
        try:
            self._take({machine: self.plan.machines[machine]})
        except PlacementError as error:
            raise PlacementError(
                f"machine {machine} of the plan ({name}) has left the cluster, and no other can take its place: {error}"
            ) from error
        spare = node_name(self._nodes[machine])
        _log.warning("machine %d of the plan (%s) has left the cluster; %s took its place", machine, name, spare)

    def _take(self, machines: Mapping[int, Sequence[Device]]) -> None:
        nodes = gpu_nodes()
        clock = Clock()
        for machine, alike in match(machines, nodes).items():
            planned = machines[machine]
            selector = {NODE_ID: f"in({','.join(node.node_id for node in alike)})"}
            group = placement_group([{"GPU": len(planned)}], bundle_label_selector=[selector])
            self._groups[machine] = group
            if not group.wait(max(self._timeout_s - clock(), 0.01)):
                free = ray.available_resources().get("GPU", 0.0)
                raise PlacementError(
                    f"{_planned(machine, planned)} would fit {', '.join(node.render() for node in alike)}; others hold "
                    f"these devices, and did not give them up within {self._timeout_s:g} s (free in the whole cluster: "
                    f"{free:g})"
                )
            node_id, names = _look(group, len(planned))
            self._nodes[machine] = node_id
            self._names[machine] = {device.index: name for device, name in zip(planned, names, strict=True)}


def match(machines: Mapping[int, Sequence[Device]], nodes: Sequence[GpuNode]) -> dict[int, list[GpuNode]]:
    """Machines of the cluster that each planned machine may go to: the one that fits best, and those like it.

    The planned ones with the most devices choose first, of equal ones those with the most memory.

    Raises:
        PlacementError: the cluster has too little for one of them even when nobody else uses it.
    """
    free = {node.node_id: node.gpus for node in nodes}
    found: dict[int, list[GpuNode]] = {}
    for machine in sorted(machines, key=lambda number: (*_size(machines[number]), number)):
        count, memory = len(machines[machine]), machines[machine][0].memory
        fitting = [
            node
            for node in nodes
            if free[node.node_id] >= count and (node.memory is None or node.memory >= MEMORY_TOLERANCE * memory)
        ]
        if not fitting:
            raise PlacementError(_too_little(machines, machine, nodes))
        best = min(fitting, key=lambda node: (node.memory or 0, free[node.node_id], node.node_id))
        free[best.node_id] -= count
        found[machine] = [node for node in fitting if (node.memory, node.gpus) == (best.memory, best.gpus)]
    return found


def gpu_nodes() -> list[GpuNode]:
    """The living machines with devices; memory from their label, else from the driver's library on the machine."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0.0) >= 1]
    silent = [node for node in alive if MEMORY_LABEL not in node["Labels"]]
    probes = {node["NodeID"]: _probe(node["NodeID"], int(node["Resources"]["GPU"])) for node in silent}
    if probes:
        ray.wait(list(probes.values()), num_returns=len(probes), timeout=_PROBE_S)
    found = []
    for node in sorted(alive, key=lambda node: (node["NodeManagerAddress"], node["NodeID"])):
        label, node_id = node["Labels"].get(MEMORY_LABEL), node["NodeID"]
        memory = _answer(probes[node_id]) if label is None else labelled_memory(label, describe_node(node))
        found.append(GpuNode(node_id, describe_node(node), int(node["Resources"]["GPU"]), memory))
    return found


def detect() -> tuple[Device, ...]:
    """Every device of the cluster, machines numbered by address; none on a cluster without.

    Raises:
        ConfigError: the memory of some cannot be read.
    """
    nodes = gpu_nodes()
    silent = [node.name for node in nodes if node.memory is None]
    if silent:
        raise ConfigError(
            f"the cluster has devices, and nobody says how much memory they have on {', '.join(silent)}; write the "
            f"devices of the run as cluster.gpus ('none' to plan for none), or start these machines with "
            f"`ray start --labels {MEMORY_LABEL}=80GB`"
        )
    return tuple(
        Device(number, index, node.memory or 0) for number, node in enumerate(nodes) for index in range(node.gpus)
    )


def labelled_memory(label: str, name: str) -> int:
    """Bytes that a machine's label says.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return parse_budget(f"1x{label}")[0].memory
    except ConfigError as error:
        raise ConfigError(f"the label {MEMORY_LABEL} of {name} is '{label}'; write it as 80GB") from error


def _look(group: PlacementGroup, count: int) -> tuple[str, tuple[str, ...]]:
    """Where a reserved machine is, and what its devices are called there. They stay the group's when the task ends."""
    place = PlacementGroupSchedulingStrategy(group, 0)
    options = {"num_cpus": 0, "num_gpus": count, "scheduling_strategy": place, "max_retries": 0}
    try:
        seen: tuple[str, tuple[str, ...]] = ray.get(ray.remote(**options)(_seen).remote(), timeout=_PROBE_S)
    except (RayError, TimeoutError) as error:
        raise PlacementError(f"a machine with {count} devices was reserved and does not answer: {error}") from error
    return seen


def _seen() -> tuple[str, tuple[str, ...]]:
    return str(ray.get_runtime_context().get_node_id()), visible_devices()


def _probe(node_id: str, count: int) -> Any:
    options = {
        "num_cpus": 0,
        "max_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
    }
    return ray.remote(**options)(device_memory).remote([str(index) for index in range(count)])


def _answer(probe: Any) -> int | None:
    try:
        memory: dict[str, int] = ray.get(probe, timeout=0)
    except (RayError, TimeoutError) as error:
        _log.warning("a machine did not say how much memory its devices have: %s", error)
        return None
    return min(memory.values(), default=None)


def _size(planned: Sequence[Device]) -> tuple[int, int]:
    return -len(planned), -planned[0].memory


def _planned(machine: int, planned: Sequence[Device]) -> str:
    size = f"of {gigabytes(planned[0].memory)} GB" if planned[0].memory else ""
    return f"machine {machine} of the plan (devices {names_of(planned)} {size}".rstrip() + ")"


def _too_little(machines: Mapping[int, Sequence[Device]], machine: int, nodes: Sequence[GpuNode]) -> str:
    count = sum(map(len, machines.values()))
    has = "; ".join(node.render() for node in nodes) or "no devices"
    return (
        f"the plan uses {count} devices on {len(machines)} machines, and the cluster cannot give them: "
        f"{_planned(machine, machines[machine])} fits no machine, or those it would fit are planned for already. "
        f"It has {has}. Write what is there as cluster.gpus and cluster.gpus_per_node"
    )
