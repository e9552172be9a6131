"""Who gets which devices: solved from a budget and wishes, or checked when written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roll_core.cluster.budget import Device, names_of, parse_process
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.fitting import check, search, takes_turns
from roll_core.cluster.memory import RESERVE, train_memory
from roll_core.cluster.placed import Demand, Placement
from roll_core.config.cluster import ClusterConfig

_MOST = 4096
"""Devices up to which an advice is sought."""
_TRIES = 24
"""Budgets that are tried for it."""


def solve(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> Placement:
    """Find a placement.

    Colocated placements use every device for both. Apart, the trainer gets the devices with the most memory, as near to
    half of them as it takes to fit, and the rest generate. Engines take the fewest devices that hold the model and the
    KV cache of a group, or of one rollout where nothing holds more.

    Raises:
        PlacementError: nothing fits; says for every layout what was too large, by how much, the smallest budget of such
            devices that would do, and what makes the trainer smaller.
    """
    if wishes.map is not None:
        return _by_hand(devices, wishes, demand)
    found = search(devices, wishes, demand)
    if isinstance(found, Placement):
        return found
    shown = "\n".join(f"  {reason}" for reason in found[:3])
    raise PlacementError(f"no placement fits {names_of(devices)}:\n{shown}\n{_advice(devices, wishes, demand)}")


def smallest_budget(memory: int, wishes: ClusterConfig, demand: Demand) -> int | None:
    """The fewest devices of some memory, on machines of `gpus_per_node`, that a run fits on; None when none do.

    Up to one machine every number is tried, beyond that whole machines.
    """
    tensor_parallel, per_node = wishes.train.tensor_parallel or 1, wishes.gpus_per_node
    limit = memory * wishes.memory_fraction - RESERVE

    def trains(count: int) -> bool:
        usable = count - count % (tensor_parallel * demand.train.replicate)
        offload = bool(wishes.train.cpu_offload)
        return usable > 0 and (train_memory(demand.train, usable, tensor_parallel, cpu_offload=offload).total <= limit)

    counts = (count for count in _sizes(per_node) if trains(count))
    for _, count in zip(range(_TRIES), counts, strict=False):
        devices = [Device(index // per_node, index % per_node, memory) for index in range(count)]
        if isinstance(search(devices, wishes, demand), Placement):
            return count
    return None


def _sizes(per_node: int) -> Iterator[int]:
    yield from range(1, per_node)
    yield from range(per_node, _MOST + 1, per_node)


def _advice(devices: Sequence[Device], wishes: ClusterConfig, demand: Demand) -> str:
    """How many of the largest devices would do, and what makes the trainer smaller."""
    memory = max(device.memory for device in devices)
    enough = smallest_budget(memory, wishes, demand)
    count = (
        f"The smallest budget of such devices that fits is {enough}x{memory / 1e9:g}GB. "
        if enough
        else f"No number of such devices up to {_MOST} fits, with {wishes.gpus_per_node} on a machine. "
    )
    hints = []
    if not demand.train.is_checkpointed:
        hints.append("gradient checkpointing")
    hints.append("a smaller micro_tokens")
    if (wishes.train.tensor_parallel or 1) == 1:
        hints.append("tensor parallelism")
    if not wishes.train.cpu_offload:
        hints.append("cluster.train.cpu_offload")
    if demand.train.lora_rank is None:
        hints.append("model.lora")
    return f"{count}What makes the trainer smaller: {', '.join(hints)}"


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
    shared = {device for process in roles["rollout"] for device in process if device in trained}
    if shared and takes_turns(wishes, demand):
        raise PlacementError(
            f"cluster.map: devices {names_of(shared)} train and generate, but rollout.mode generates while the trainer "
            "works; give each its own, or set cluster.offload: false"
        )
    found = check("colocate" if shared else "apart", roles["train"], roles["rollout"], wishes, demand)
    if isinstance(found, str):
        raise PlacementError(f"cluster.map does not fit: {found}")
    return found
