from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

from roll_core.cluster import LocalExecutor, RayExecutor, WorkerSpec

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

START_S = 60.0


@pytest.fixture(scope="session")
def ray_address():
    """A Ray cluster of one small machine on this one; without Ray, its tests are skipped."""
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 4,
                "include_dashboard": False,
                "object_store_memory": 200_000_000,
                "_system_config": {
                    "health_check_initial_delay_ms": 0,
                    "health_check_period_ms": 500,
                    "health_check_failure_threshold": 3,
                },
            },
        )
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module", params=["local", "ray"])
def executor(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if request.param == "local":
            made = LocalExecutor()
        else:
            made = RayExecutor(address=request.getfixturevalue("ray_address").address, placement_timeout_s=20)
        with made:
            yield made


@pytest.fixture
def start(executor):
    """Start a role; its group is closed when the test ends."""
    groups = []

    def start_group(role="actor", count=2, factory="cluster_workers:AsyncWorker", timeout_s=START_S, **options):
        per_rank = options.pop("per_rank", [{"rank": i} for i in range(count)])
        cpus = options.pop("cpus", 0.5)
        group = executor.start(
            WorkerSpec(role, factory, count, per_rank=per_rank, cpus=cpus, **options), timeout_s=timeout_s
        )
        groups.append(group)
        return group

    yield start_group
    for group in groups:
        group.close()


@pytest.fixture(scope="module")
def pair(executor):
    """Two workers that tests may only call, not harm."""
    spec = WorkerSpec(
        "pair", "cluster_workers:make_async", 2, per_rank=[{"rank": 0}, {"rank": 1}], kwargs={"scale": 2}, cpus=0.5
    )
    group = executor.start(spec, timeout_s=START_S)
    yield group
    group.close()
