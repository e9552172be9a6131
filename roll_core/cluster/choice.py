"""The executor that a config names, with the run's devices shared out among its roles before anything is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from roll_core.cluster.budget import Device, parse_budget
from roll_core.cluster.demand import folders_of, needs_of
from roll_core.cluster.devices import visible_devices
from roll_core.cluster.errors import PlacementError
from roll_core.cluster.nvml import device_memory
from roll_core.cluster.placement import solve
from roll_core.cluster.placement_report import render_placement
from roll_core.cluster.seats import NO_PLAN, SeatPlan
from roll_core.cluster.spec import Executor
from roll_core.config.cluster import ClusterConfig
from roll_core.config.schema import RunConfig
from roll_core.errors import ConfigError
from roll_core.plugin.host import Host

_log = logging.getLogger(__name__)


def executor_for(config: RunConfig, host: Host, logs: Path) -> Executor | None:
    """Build the executor, plan the run's devices, and check that they are there; None for "driver".

    The budget is `cluster.gpus`; where that is null, the devices found on this machine or in the Ray cluster. Without
    devices nothing is planned, and `Executor.seats` is None for every role.

    Args:
        config: the run.
        host: the driver's plugins, which every worker must have too.
        logs: folder for what workers print.

    Raises:
        ConfigError: the `cluster` section cannot be read or contradicts itself.
        PlacementError: no placement fits the devices, or they are not there.
        ModuleNotFoundError: the executor is "ray", and Ray is not installed.
    """
    cluster = config.cluster
    if cluster.executor == "driver":
        return None
    if cluster.executor == "local":
        from roll_core.cluster.local import LocalExecutor

        return LocalExecutor(host, logs=logs, seats=plan_seats(config, host, local_devices))
    from roll_core.cluster.ray_executor import RayExecutor

    timeout_s = cluster.placement_timeout_s
    executor = RayExecutor(host, address=cluster.address, logs=logs, placement_timeout_s=timeout_s)
    try:
        executor.adopt(plan_seats(config, host, executor.devices))
    except BaseException:
        executor.close()
        raise
    return executor


def plan_seats(config: RunConfig, host: Host, detect: Callable[[], tuple[Device, ...]]) -> SeatPlan:
    """Who sits on which devices.

    Args:
        config: the run.
        host: its plugins.
        detect: tells what devices there are, where the config does not.

    Raises:
        ConfigError, PlacementError: see `executor_for`.
    """
    devices = budget_of(config.cluster, detect)
    if not devices:
        return NO_PLAN
    needs = needs_of(config, host, folders_of(host))
    try:
        placement = solve(devices, needs.wishes, needs.demand)
    except PlacementError as error:
        if config.cluster.gpus is None:
            error.add_note("these devices were found here; write cluster.gpus, 'none' to plan for none")
        raise
    _log.info("placement\n%s", "\n".join(render_placement(placement)))
    return placement.seat_plan(devices)


def budget_of(cluster: ClusterConfig, detect: Callable[[], tuple[Device, ...]]) -> tuple[Device, ...]:
    """The devices of a run; empty for none.

    Raises:
        ConfigError: it cannot be read, or a hand-written map has no devices to name.
    """
    devices = detect() if cluster.gpus is None else parse_budget(cluster.gpus, cluster.gpus_per_node)
    if not devices and cluster.map is not None:
        raise ConfigError("cluster.map names devices, and there are none; write cluster.gpus, or take the map out")
    return devices


def local_devices() -> tuple[Device, ...]:
    """Devices of this machine that this process may use, as one machine of a budget.

    Raises:
        ConfigError: the memory of some cannot be read.
    """
    names = visible_devices()
    memory = device_memory(names)
    silent = [name for name in names if name not in memory]
    if silent:
        raise ConfigError(
            f"this machine has devices {', '.join(names)}, and the driver's library does not say how much memory "
            f"{', '.join(silent)} has; write the devices of the run as cluster.gpus ('none' to plan for none)"
        )
    return tuple(Device(0, index, memory[name]) for index, name in enumerate(names))
