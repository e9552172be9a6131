"""The executor that a config names."""

from __future__ import annotations

from pathlib import Path

from roll_core.cluster.spec import Executor
from roll_core.config.cluster import ClusterConfig
from roll_core.plugin.host import Host


def make_executor(config: ClusterConfig, host: Host, logs: Path) -> Executor | None:
    """Build the executor; None for "driver", which keeps everything in one process.

    Args:
        config: the `cluster` section.
        host: the driver's plugins, which every worker must have too.
        logs: folder for what workers print.

    Raises:
        ModuleNotFoundError: the executor is "ray", and Ray is not installed.
    """
    if config.executor == "driver":
        return None
    if config.executor == "local":
        from roll_core.cluster.local import LocalExecutor

        return LocalExecutor(host, logs=logs)
    from roll_core.cluster.ray_executor import RayExecutor

    timeout_s = config.placement_timeout_s
    return RayExecutor(host, address=config.address, logs=logs, placement_timeout_s=timeout_s)
