"""What happens to workers when their machine or their driver goes away, and how they prove what they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from roll_core.cluster import LocalExecutor, PlacementError, RayExecutor, WorkerLost, WorkerSpec
from roll_core.cluster.processes import is_running
from roll_core.cluster.proof import Proof, check_builds, check_proof, prove
from roll_core.errors import PluginError
from roll_core.plugin.host import Host

HERE = Path(__file__).parent
ASK = {"timeout_s": 20.0, "what": "a test"}
DRIVER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from roll_core.cluster import LocalExecutor, RayExecutor, WorkerSpec
executor = {executor}
spec = WorkerSpec("actor", "cluster_workers:Worker", 2, per_rank=[{{"rank": 0}}, {{"rank": 1}}], cpus=0.5)
group = executor.start(spec, timeout_s=60)
pids = [pid for _, pid, _ in group.call("who", timeout_s=20, what="pids")]
pids += group.call("spawn", timeout_s=20, what="children") if executor.name == "local" else []
group.submit(0, "hang_in_regex", timeout_s=500, what="hang")
time.sleep(0.5)
print(*pids, flush=True)
time.sleep(500)
"""


@pytest.mark.parametrize("name", ["local", "ray"])
def test_no_worker_survives_a_driver_that_was_killed(name, request, tmp_path):
    logs = f"logs=Path({str(tmp_path)!r})"
    executor = f"LocalExecutor({logs})"
    if name == "ray":
        executor = f"RayExecutor(address={request.getfixturevalue('ray_address').address!r}, {logs})"
    code = DRIVER.format(here=str(HERE), executor=executor)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as driver:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == (4 if name == "local" else 2) and all(is_running(pid) for pid in pids)
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + (2 if name == "local" else 30)
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lost_node_takes_its_ranks_with_it_and_replicas_come_up_elsewhere(ray_address):
    lost_node = ray_address.add_node(num_cpus=4, object_store_memory=100_000_000)
    with RayExecutor(address=ray_address.address, placement_timeout_s=20) as executor:
        spec = WorkerSpec("actor", "cluster_workers:Worker", 2, cpus=2.5, per_rank=[{"rank": 0}, {"rank": 1}])
        ranks = executor.start(spec, timeout_s=60)
        spec = WorkerSpec("rollout", "cluster_workers:AsyncWorker", 2, cpus=1.5, is_restartable=True)
        replicas = executor.start(spec, timeout_s=60)
        doomed = lost_node.node_id[:8]
        on_doomed = [(g, i) for g in (replicas, ranks) for i in range(2) if g.node(i).startswith(doomed)]
        assert [group.role for group, _ in on_doomed] == ["rollout", "actor"]
        waiting = [group.submit(index, "sleep", 100, timeout_s=90, what="work") for group, index in on_doomed]
        begin = time.monotonic()
        ray_address.remove_node(lost_node, allow_graceful=False)
        for (group, index), future in zip(on_doomed, waiting, strict=True):
            with pytest.raises(WorkerLost, match="has left the cluster") as caught:
                future.result(60)
            assert (caught.value.role, caught.value.index) == (group.role, index)
            assert caught.value.node.startswith(doomed) and doomed in str(caught.value)
        assert time.monotonic() - begin < 30
        _check_survivors(executor, replicas, ranks, on_doomed)


def _check_survivors(executor, replicas, ranks, on_doomed):
    """Ranks fail as a group; a replica comes up on the other node as soon as there is room, and not before."""
    with pytest.raises(WorkerLost, match=r"actor\["):
        ranks.call("add", 1, **ASK)
    ranks.close()
    replicas.restart(on_doomed[0][1])
    assert replicas.call("add", 1, **ASK) == [1, 1]
    assert len({replicas.node(i) for i in range(2)}) == 1
    executor._placement_timeout_s = 1.0
    with pytest.raises(PlacementError, match="others hold what it needs"):
        executor.start(WorkerSpec("more", "cluster_workers:Worker", 1, cpus=3), timeout_s=60)


# --- proof ---


def test_workers_prove_the_drivers_plugins(tmp_path, monkeypatch):
    rollfile = tmp_path / "rollfile.py"
    rollfile.write_text(
        "from roll_core import reward\n\n@reward\ndef half(group):\n    return [0.5 for _ in group.rollouts]\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        host = Host.discover(select="none", rollfile=rollfile, extra=[Extra()])
    spec = WorkerSpec("actor", "cluster_workers:Worker", 1)
    with LocalExecutor(host) as executor:
        group = executor.start(spec, timeout_s=60)
        assert group.call("add", 1, **ASK) == [1]
        group.close()
        rollfile.write_text(rollfile.read_text() + "\nCHANGED = 1\n")
        with pytest.raises(PluginError, match=r"actor\[0\] \(pid \d+ on .*\): plugins differ: 'rollfile' is"):
            executor.start(spec, timeout_s=60)


class Extra:
    """A plugin that only the driver can have."""

    roll_plugin_name = "extra"


def test_builds_are_compared_within_a_role_and_versions_with_the_driver(monkeypatch):
    cuda, cpu = ({"torch": "2.13.0+cu130", "nvidia-nccl-cu13": "2.28"}, {"torch": "2.13.0+cpu"})
    check_builds({"a[0]": Proof({}, builds=cuda), "a[1]": Proof({}, builds=dict(cuda))})
    with pytest.raises(PluginError, match=r"builds of torch \(a\[0\]: 2.13.0\+cu130, a\[1\]: 2.13.0\+cpu\)"):
        check_builds({"a[0]": Proof({}, builds=cuda), "a[1]": Proof({}, builds=cpu)})
    other = {**cuda, "nvidia-nccl-cu13": "2.27"}
    with pytest.raises(PluginError, match="builds of nvidia-nccl-cu13"):
        check_builds({"a[0]": Proof({}, builds=cuda), "a[1]": Proof({}, builds=other)})
    own = prove(None)
    assert own.builds["torch"].partition("+")[0] == own.versions["torch"]
    check_proof(Proof({**own.versions, "vllm": "0.32.0"} if "vllm" not in own.versions else own.versions), None, "a[0]")
    monkeypatch.setattr("roll_core.cluster.proof._versions", lambda: {**own.versions, "vllm": "0.32.0"})
    with pytest.raises(PluginError, match=r"a\[0\]: versions differ: vllm is 0.32.0 here and 0.31.0 there"):
        check_proof(Proof({**own.versions, "vllm": "0.31.0"}), None, "a[0]")


def test_logs_and_stacks_are_kept_in_the_runs_folder(tmp_path):
    with LocalExecutor(logs=tmp_path / "logs") as executor:
        group = executor.start(WorkerSpec("actor", "cluster_workers:Worker", 1), timeout_s=60)
        with pytest.raises(WorkerLost, match=r"(?s)exited with code 7.*last words") as caught:
            group.call("exit_or_hang", 0, 7, **ASK)
        assert caught.value.code == 7
    assert (tmp_path / "logs" / "actor-0.log").read_text() == "last words of the worker\n"
    with LocalExecutor() as executor:
        folder = executor.logs
        assert folder.is_dir()
    assert not folder.exists()


def test_a_worker_killed_while_idle_is_noticed_at_once():
    with LocalExecutor() as executor:
        group = executor.start(WorkerSpec("actor", "cluster_workers:Worker", 2), timeout_s=60)
        os.kill(group.greeting(1).pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while group.health()[1].is_alive and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [each.is_alive for each in group.health()] == [True, False]
        with pytest.raises(WorkerLost, match=r"actor\[1\] .* was killed by SIGKILL"):
            group.call("add", 1, **ASK)
