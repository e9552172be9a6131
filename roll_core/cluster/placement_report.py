"""A placement for people and for programs."""

from __future__ import annotations

from typing import Any

from roll_core.cluster.budget import gigabytes, names_of
from roll_core.cluster.placed import Placement, Usage


def render_placement(placement: Placement) -> list[str]:
    """Lines for people: roles, memory of a trainer process by purpose, and every device's load in each phase."""
    trainer = [device for process in placement.train for device in process]
    engines = [device for process in placement.rollout for device in process]
    size = len(placement.rollout[0])
    groups = f"{placement.data_parallel} data-parallel x {placement.tensor_parallel} tensor-parallel"
    lines = [
        f"{'layout':<14} {placement.layout}",
        f"{'train':<14} {len(placement.train)} processes on {names_of(trainer)} ({groups})",
        f"{'rollout':<14} {len(placement.rollout)} engines of {size} on {names_of(engines)}",
        f"{'KV cache':<14} {gigabytes(placement.kv_bytes)} GB a device: an engine holds {placement.concurrent} of the "
        "longest rollouts at once",
        "",
        "memory of a trainer process, GB",
    ]
    for role, terms in placement.train_memory.terms.items():
        parts = ", ".join(f"{name} {gigabytes(amount)}" for name, amount in terms.items())
        lines.append(f"  {role:<12} {gigabytes(sum(terms.values())):>7}  {parts}")
    if placement.train_memory.host:
        lines.append(f"  {'machine':<12} {gigabytes(placement.train_memory.host):>7}  kept in the machine's memory")
    if placement.engine_parked:
        lines.append(
            f"  {'engine':<12} {gigabytes(placement.engine_parked):>7}  a device, kept in the machine's memory "
            "while the trainer works"
        )
    lines += ["", f"{'device':<14} {'memory':>8} {'train':>8} {'rollout':>8} {'sync':>8}   GB in each phase"]
    for devices, usage in _alike(placement.usage):
        cells = (usage.device.memory, usage.train, usage.rollout, usage.sync)
        lines.append(f"{devices:<14} " + " ".join(f"{gigabytes(cell):>8}" for cell in cells))
    return [*lines, *(f"warning: {text}" for text in placement.warnings)]


def placement_dict(placement: Placement) -> dict[str, Any]:
    """For `--json`; memory in bytes."""
    return {
        "layout": placement.layout,
        "train": [[device.name for device in process] for process in placement.train],
        "rollout": [[device.name for device in process] for process in placement.rollout],
        "tensor_parallel": placement.tensor_parallel,
        "data_parallel": placement.data_parallel,
        "train_memory": placement.train_memory.terms,
        "train_host_bytes": placement.train_memory.host,
        "engine_parked_bytes": placement.engine_parked,
        "engine_shares": list(placement.shares),
        "concurrent_rollouts": placement.concurrent,
        "kv_bytes": placement.kv_bytes,
        "devices": {
            usage.device.name: {
                "memory": usage.device.memory,
                "train": usage.train,
                "rollout": usage.rollout,
                "sync": usage.sync,
            }
            for usage in placement.usage
        },
        "warnings": list(placement.warnings),
    }


def _alike(usages: tuple[Usage, ...]) -> list[tuple[str, Usage]]:
    """Devices with the same load together."""
    groups: dict[tuple[float, ...], list[Usage]] = {}
    for usage in usages:
        groups.setdefault((usage.device.memory, usage.train, usage.rollout, usage.sync), []).append(usage)
    return [(names_of(each.device for each in group), group[0]) for group in groups.values()]
