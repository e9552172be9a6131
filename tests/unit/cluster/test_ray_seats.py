"""Seats of a plan on a Ray cluster of unlike machines, which come and go; their devices are numbers Ray counts."""

from __future__ import annotations

import json
import socket
import time

import pytest

pytest.importorskip("ray")

from roll_core.cluster import PlacementError, RayExecutor, Seat, WorkerLost, WorkerSpec
from roll_core.cluster.budget import Device, parse_budget
from roll_core.cluster.choice import executor_for
from roll_core.cluster.ray_machines import MEMORY_LABEL, GpuNode, labelled_memory, match
from roll_core.cluster.seats import SeatPlan
from roll_core.config.load import load_config
from roll_core.errors import ConfigError
from roll_core.plugin.host import Host

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

ASK = {"timeout_s": 60.0, "what": "a test"}
GB = 10**9
RUN = """
model: {path: MODEL}
domains:
  math: {data: m.jsonl, verifier: math_boxed}
batch: {prompts: 16, group_size: 8, max_prompt_tokens: 128}
rollout: {sampling: {max_new_tokens: 256}}
cluster: {executor: ray, address: "ADDRESS", placement_timeout_s: 20}
"""


def add(cluster, gpus, memory=None, cpus=2):
    labels = {} if memory is None else {"labels": {MEMORY_LABEL: memory}}
    return cluster.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=80_000_000, **labels)


def remove(cluster, node):
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def unlike(ray_address):
    """Two more machines: 2 x 24 GB and 8 x 80 GB."""
    nodes = [add(ray_address, 2, "24GB"), add(ray_address, 8, "80GB")]
    yield nodes
    for node in nodes:
        remove(ray_address, node)


def plan_of(budget, **seats):
    return SeatPlan(parse_budget(budget), {role: tuple(Seat(m, d) for m, d in own) for role, own in seats.items()})


def adopted(cluster, plan, timeout_s=20.0):
    executor = RayExecutor(address=cluster.address, placement_timeout_s=timeout_s)
    try:
        executor.adopt(plan)
    except BaseException:
        executor.close()
        raise
    return executor


def seen(group):
    return [names for (names,) in group.call("env", "CUDA_VISIBLE_DEVICES", **ASK)]


def start(executor, role, seats, **options):
    spec = WorkerSpec(role, "cluster_workers:AsyncWorker", len(seats), seats=tuple(seats), cpus=0.2, **options)
    return executor.start(spec, timeout_s=60)


def test_planned_machines_are_found_by_their_devices(ray_address, unlike):
    """Machine 0 of the plan is the small one; train and rollout take turns on the other."""
    small, large = (node.node_id[:8] for node in unlike)
    plan = plan_of("2x24GB + 8x80GB", train=[(1, (0,)), (1, (1,))], rollout=[(0, (0, 1)), (1, (1, 7))])
    with adopted(ray_address, plan) as executor:
        train = start(executor, "actor", executor.seats("train"))
        rollout = start(executor, "rollout", executor.seats("rollout"), is_restartable=True)
        assert seen(train) == ["0", "1"] and seen(rollout) == ["0,1", "1,7"]
        assert {train.node(i)[:8] for i in range(2)} == {large}
        assert [rollout.node(i)[:8] for i in range(2)] == [small, large]
        assert [each.devices for each in executor.health()][-1] == ("1", "7")
        assert train.call("env", "LOCAL_RANK", **ASK) == [["0"], ["1"]]
        guest = executor.start(
            WorkerSpec("reference", "cluster_workers:Worker", 1, share_with="actor", cpus=0), timeout_s=60
        )
        assert seen(guest) == ["0,1"] and guest.node(0)[:8] == large
        # planned devices are the run's, those of no role too
        executor._placement_timeout_s = 1.0
        with pytest.raises(PlacementError, match="role 'judge' asks for 1 x"):
            executor.start(WorkerSpec("judge", "cluster_workers:Worker", 1, gpus=1), timeout_s=60)
        begin = time.monotonic()
        with pytest.raises(PlacementError, match=r"machine 0 of the plan .* others hold these devices"):
            adopted(ray_address, plan_of("8x80GB", train=[(0, (0,))]), timeout_s=1.0)
        assert time.monotonic() - begin < 60
        executor.close()
    with adopted(ray_address, plan_of("8x80GB", train=[(0, (5,))])) as executor:  # all was given back
        assert seen(start(executor, "actor", executor.seats("train"))) == ["5"]


def test_more_than_the_cluster_has_is_refused_before_anything_starts(ray_address, unlike):
    for budget, count, machine in (
        ("16x80GB", 8, r"machine 1 of the plan \(devices 1:0-7 of 80.0 GB\) fits no machine"),
        ("8x141GB", 8, r"machine 0 of the plan .* 141.0 GB\) fits no machine"),
        ("2x24GB+2x24GB+8x80GB", 2, r"machine 1 of the plan .* planned for already"),
    ):
        devices = parse_budget(budget)
        used = [(node, (0,)) for node in sorted({device.node for device in devices})]
        assert len([device for device in devices if device.node == 0]) == count
        with pytest.raises(PlacementError, match=machine) as caught:
            adopted(ray_address, plan_of(budget, train=used))
        assert "2 x 24.0 GB" in str(caught.value) and "8 x 80.0 GB" in str(caught.value)
        assert "Write what is there as cluster.gpus" in str(caught.value)


def test_the_devices_of_a_cluster_are_the_budget_of_its_config(ray_address, unlike, tmp_path):
    model = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps(model))
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("MODEL", str(tmp_path)).replace("ADDRESS", ray_address.address))
    host = Host.discover(select="auto")
    with executor_for(load_config(file, ()).config, host, tmp_path / "logs") as executor:
        assert len(executor.seats("train")) == len(executor.seats("rollout")) == 10
        assert {seat.machine for seat in executor.seats("train")} == {0, 1}
    written = load_config(file, ("cluster.gpus=none",)).config
    with executor_for(written, host, tmp_path / "logs") as executor:
        assert executor.seats("train") is None
    silent = add(ray_address, 1)
    try:
        with pytest.raises(ConfigError, match=f"nobody says how much memory they have on {silent.node_id[:8]}"):
            executor_for(load_config(file, ()).config, host, tmp_path / "logs")
        # a written budget takes such a machine at its word
        with executor_for(load_config(file, ("cluster.gpus=1x80GB",)).config, host, tmp_path / "logs") as executor:
            assert start(executor, "actor", executor.seats("train")).node(0)[:8] == silent.node_id[:8]
    finally:
        remove(ray_address, silent)


def test_a_machine_that_leaves_is_replaced_by_a_spare_one(ray_address, unlike):
    """Between plan and start, and under a replica; without a spare machine both say so."""
    doomed = add(ray_address, 12, "48GB")
    devices = parse_budget("12x48GB", gpus_per_node=12)
    plan = SeatPlan(devices, {"train": (Seat(0, (0,)), Seat(0, (1,))), "rollout": (Seat(0, (2, 11)),)})
    with adopted(ray_address, plan) as executor:
        ranks = start(executor, "actor", executor.seats("train"))
        replica = start(executor, "rollout", executor.seats("rollout"), is_restartable=True)
        lost = [replica.submit(0, "sleep", 300, timeout_s=200, what="work"), ranks.submit(1, "sleep", 300, **ASK)]
        begin = time.monotonic()
        remove(ray_address, doomed)
        for future in lost:
            with pytest.raises(WorkerLost, match="has left the cluster"):
                future.result(60)
        assert time.monotonic() - begin < 60
        ranks.close()
        for act in (lambda: replica.restart(0), lambda: start(executor, "actor", executor.seats("train"))):
            with pytest.raises(PlacementError, match=r"machine 0 of the plan \(\w+@.*\) has left the cluster, and no"):
                act()
        spare = add(ray_address, 12, "80GB")
        try:
            replica.restart(0)
            ranks = start(executor, "actor", executor.seats("train"))
            assert seen(replica) == ["2,11"] and seen(ranks) == ["0", "1"]
            assert {group.node(0)[:8] for group in (replica, ranks)} == {spare.node_id[:8]}
        finally:
            remove(ray_address, spare)
        begin = time.monotonic()
        executor.close()
        assert time.monotonic() - begin < 60


def test_closing_after_a_loss_says_nothing(ray_address, unlike, caplog, capfd):
    node = add(ray_address, 1, "48GB")
    with adopted(ray_address, plan_of("1x48GB", rollout=[(0, (0,))])) as executor:
        group = start(executor, "rollout", executor.seats("rollout"))
        remove(ray_address, node)
        with pytest.raises(WorkerLost):
            group.call("sleep", 300, **ASK)
        caplog.clear()
        capfd.readouterr()
        executor.close()
        executor.close()
    assert [record.message for record in caplog.records if record.name.startswith("roll_core")] == []
    assert "Traceback" not in "".join(capfd.readouterr())


# --- without a cluster ---


def test_a_cluster_that_is_not_there_is_said_soon():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"  # bound, and nobody listens
        begin = time.monotonic()
        with pytest.raises(PlacementError, match=f"no Ray cluster answers at '{address}' .*ray start --head"):
            RayExecutor(address=address)
    assert time.monotonic() - begin < 60


def matched(budget, *nodes, per_node=8):
    plan = SeatPlan(parse_budget(budget, per_node), {})
    there = [GpuNode(name, name, gpus, None if memory is None else memory * GB) for name, gpus, memory in nodes]
    return {machine: sorted(node.name for node in alike) for machine, alike in match(plan.machines, there).items()}


def test_machines_go_where_they_fit_most_tightly():
    nodes = [("a", 8, 80), ("b", 2, 24), ("c", 8, 80), ("d", 8, 141)]
    assert matched("2x24GB + 8x80GB", *nodes) == {0: ["b"], 1: ["a", "c"]}
    assert matched("8x141GB + 8x80GB", *nodes) == {0: ["d"], 1: ["a", "c"]}
    assert matched("24x80GB", *nodes)[2] == ["d"]
    assert matched("4x80GB + 4x80GB", ("a", 8, 80)) == {0: ["a"], 1: ["a"]}
    assert matched("8x24GB", ("a", 8, 23)) == {0: ["a"]}  # sold as 24 GB
    assert matched("8x24GB", ("a", 8, None)) == {0: ["a"]}
    for wrong in ("8x24GB+1x24GB", "8x80GB", "9x10GB"):
        with pytest.raises(PlacementError, match="the cluster cannot give them"):
            matched(wrong, ("a", 8, 24), per_node=9)
    with pytest.raises(PlacementError, match="It has no devices"):
        match({0: (Device(0, 0, GB),)}, [])


def test_a_label_that_cannot_be_read_is_named():
    assert labelled_memory("80GB", "b1") == 80 * GB and labelled_memory("79.6GiB", "b1") == int(79.6 * 2**30)
    with pytest.raises(ConfigError, match=f"the label {MEMORY_LABEL} of b1 is 'big'; write it as 80GB"):
        labelled_memory("big", "b1")
