from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

from roll_core.cluster import LocalExecutor, RayExecutor
from roll_core.roles import RoleGroup, Room, host_spec

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "scoring"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from role_handlers import QUICK  # noqa: E402 - the folder has to be on the path first


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray cluster of one small machine on this one; without Ray, its tests are skipped."""
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        noticing = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 3,
        }
        options = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 100_000_000}
        cluster = Cluster(initialize_head=True, head_node_args={**options, "_system_config": noticing})
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module", params=["local", "ray"])
def executor(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if request.param == "local":
            made = LocalExecutor()
        else:
            made = RayExecutor(address=request.getfixturevalue("ray_cluster").address, placement_timeout_s=30)
        with made:
            yield made


@pytest.fixture(scope="module")
def local():
    with LocalExecutor() as made:
        yield made


@pytest.fixture
def open_role():
    """Start a role of toy handlers; it is closed when the test ends."""
    opened = []

    def start(executor, hosts=2, room=4, limits=QUICK, **kwargs):
        spec = host_spec("toys", "role_handlers:open_toy", hosts, kwargs, cpus=0.5)
        group = RoleGroup(executor, spec, rooms={"work": Room.of(room)}, limits=limits)
        opened.append(group)
        assert group.start() == "toy"
        return group

    yield start
    for group in opened:
        group.close()
