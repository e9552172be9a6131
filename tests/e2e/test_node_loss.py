"""A machine of the Ray cluster is lost while a run trains on it; the run goes on with the machines that are left."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_files import rows_of
from test_chaos import check_books

import roll_core as roll

STEPS = 8


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A head that holds no workers, and two machines; each has room for a whole run."""
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        noticing = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 6,
        }
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": noticing}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=6, object_store_memory=100_000_000)
        yield cluster
        cluster.shutdown()


def lose_a_machine_with_ranks(cluster: Any, folder: Path, lost: list[str]) -> None:
    """Once three steps are committed, take away the machine that a training rank is on."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        path = folder / "status.json"
        status = json.loads(path.read_text()) if path.exists() else {"step": 0}
        if status["step"] >= 3:
            places = {w["node"].partition("@")[0] for w in status["workers"] if w["role"] == "actor" and w["is_alive"]}
            for node in list(cluster.worker_nodes):
                if any(place and node.node_id.startswith(place) for place in places):
                    cluster.remove_node(node, allow_graceful=False)
                    lost.append(node.node_id)
                    return
        time.sleep(0.05)


def test_a_run_goes_on_without_a_lost_machine(ray_cluster: Any, base_config: dict[str, Any]) -> None:
    config = base_config | {
        "steps": STEPS,
        "checkpoint": {"every": 1},
        "cluster": {"executor": "ray", "address": ray_cluster.address},
        "rollout": base_config["rollout"] | {"backend": {"use": "local", "precision": "float32", "replicas": 1}},
        "train": base_config["train"] | {"strategy": {"use": "fsdp", "world_size": 2, "precision": "float32"}},
        "scoring": {"hosts": 1, "workers": 1},
        "eval": {"at_start": False, "at_end": False},
        "faults": {"wait_s": 1, "restarts": 5},
    }
    folder, lost = Path(config["folder"]), list[str]()
    thread = threading.Thread(target=lose_a_machine_with_ranks, args=(ray_cluster, folder, lost))
    thread.start()
    run = roll.train(**config)
    thread.join(10)
    assert len(lost) == 1
    assert run.result.status == "finished"
    assert json.loads((folder / "status.json").read_text())["restarts"] >= 1
    assert [row["step"] for row in rows_of(folder)] == list(range(1, STEPS + 1))
    check_books(folder)
