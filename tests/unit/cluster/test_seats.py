"""Seats of a plan, on this machine; devices here are names in the environment."""

from __future__ import annotations

import ctypes
import json
import logging

import pytest

from roll_core.cluster import LocalExecutor, PlacementError, Seat, WorkerSpec, choice, nvml
from roll_core.cluster.budget import Device
from roll_core.cluster.choice import executor_for
from roll_core.cluster.devices import visible_devices
from roll_core.cluster.seats import SeatPlan, share_devices
from roll_core.config.load import load_config
from roll_core.errors import ConfigError
from roll_core.plugin.host import Host

ASK = {"timeout_s": 20.0, "what": "a test"}
MODEL = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 4096,
}
RUN = """
model: {path: MODEL}
domains:
  math: {data: m.jsonl, verifier: math_boxed}
batch: {prompts: 16, group_size: 8, max_prompt_tokens: 128}
rollout: {sampling: {max_new_tokens: 256}}
cluster: {executor: local}
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("MODEL", str(tmp_path / "model")))
    return lambda *overrides: load_config(file, overrides).config


@pytest.fixture(scope="module")
def host():
    return Host.discover(select="auto")


def seen(group):
    return [names for (names,) in group.call("env", "CUDA_VISIBLE_DEVICES", **ASK)]


# --- seats ---


def test_seats_and_specs_are_checked():
    for wrong in ((0, ()), (-1, (0,)), (0, (1, 1)), (0, (-1,))):
        with pytest.raises(ConfigError, match="one or more different devices of one machine"):
            Seat(*wrong)
    assert Seat(1, (0, 3)).name == "1:0,3"
    assert Seat(0, (0,), 0.5) == Seat(0, (0,))
    seats = (Seat(0, (0, 1)),)
    for options, message in (
        ({"count": 2}, "1 seats for 2 processes"),
        ({"count": 1, "gpus": 1}, "gpus is 1, but its seats are 0:0,1"),
        ({"count": 1, "share_with": "train"}, "cannot share those of 'train' too"),
    ):
        with pytest.raises(ConfigError, match=message):
            WorkerSpec("actor", "a:b", seats=seats, **options)
    assert WorkerSpec("actor", "a:b", 1, seats=seats, gpus=2).resources() == {"CPU": 1.0}


def test_each_process_sees_the_devices_of_its_seat_and_no_others():
    seats = {
        "train": (Seat(0, (0,)), Seat(0, (1,))),
        "rollout": (Seat(0, (0, 1)), Seat(0, (2,))),
    }
    with LocalExecutor(devices=["4", "5", "GPU-6", "7"], seats=seats) as executor:
        assert executor.seats("train") == seats["train"] and executor.seats("judge") is None
        assert share_devices(executor)
        train = executor.start(
            WorkerSpec("actor", "cluster_workers:Worker", 2, seats=executor.seats("train"), gpus=1), timeout_s=60
        )
        rollout = executor.start(
            WorkerSpec("rollout", "cluster_workers:Worker", 2, seats=seats["rollout"], is_restartable=True),
            timeout_s=60,
        )
        assert seen(train) == ["4", "5"] and seen(rollout) == ["4,5", "GPU-6"]
        rollout.restart(0)
        assert seen(rollout) == ["4,5", "GPU-6"]
        workers = {(each.role, each.index): each.devices for each in executor.health()}
        assert workers == {
            ("actor", 0): ("4",),
            ("actor", 1): ("5",),
            ("rollout", 0): ("4", "5"),
            ("rollout", 1): ("GPU-6",),
        }
        # what nobody planned is there for roles without seats, and no more
        judge = executor.start(WorkerSpec("judge", "cluster_workers:Worker", 1, gpus=1), timeout_s=60)
        assert seen(judge) == ["7"]
        with pytest.raises(PlacementError, match="asks for 1 devices; this machine's devices are 7: 0 free"):
            executor.start(WorkerSpec("second", "cluster_workers:Worker", 1, gpus=1), timeout_s=60)
        train.close()
        with pytest.raises(ConfigError, match=r"role 'more' has a seat on 0:3; planned are 0:0-2"):
            executor.start(WorkerSpec("more", "cluster_workers:Worker", 1, seats=(Seat(0, (3,)),)), timeout_s=60)


def test_without_a_plan_there_are_no_seats():
    with LocalExecutor(devices=[]) as executor:
        assert executor.seats("train") is None and executor.health() == []
        assert not share_devices(executor) and not share_devices(None)
        with pytest.raises(ConfigError, match="has a seat on 0:0; planned are"):
            executor.start(WorkerSpec("actor", "cluster_workers:Worker", 1, seats=(Seat(0, (0,)),)), timeout_s=60)


def test_a_plan_beyond_this_machine_is_refused(monkeypatch):
    with pytest.raises(PlacementError, match="uses 2 machines"):
        LocalExecutor(devices=["0"], seats={"train": (Seat(0, (0,)), Seat(1, (0,)))})
    with pytest.raises(PlacementError, match=r"uses devices 0:0-1; this machine has 1 for this run: 0"):
        LocalExecutor(devices=["0"], seats={"train": (Seat(0, (0, 1)),)})
    with pytest.raises(PlacementError, match="this machine has none"):
        LocalExecutor(devices=[], seats={"train": (Seat(0, (0,)),)})
    monkeypatch.setattr("roll_core.cluster.local.device_memory", lambda names: dict.fromkeys(names, 24 * 10**9))
    plan = SeatPlan((Device(0, 0, 80 * 10**9),), {"train": (Seat(0, (0,)),)})
    with pytest.raises(PlacementError, match=r"device 0:0 80\.0 GB; device 0 of this machine has 24\.0 GB"):
        LocalExecutor(devices=["0"], seats=plan)
    LocalExecutor(devices=["0"], seats=SeatPlan((Device(0, 0, 25 * 10**9),), plan.seats)).close()


# --- the executor of a config ---


def test_a_written_budget_becomes_seats(config, host, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with (
        caplog.at_level(logging.INFO, logger="roll_core"),
        executor_for(config("cluster.gpus=2x24GB"), host, tmp_path) as executor,
    ):
        assert executor.seats("train") == executor.seats("rollout") == (Seat(0, (0,)), Seat(0, (1,)))
        assert 0.5 < executor.seats("rollout")[0].memory_share < 0.9
    assert "2 processes on 0:0-1" in caplog.text
    written = "cluster.map={train: ['0:1'], rollout: ['0:0']}"
    with executor_for(config("cluster.gpus=2x24GB", written), host, tmp_path) as executor:
        assert executor.seats("train") == (Seat(0, (1,)),) and not share_devices(executor)
    with pytest.raises(PlacementError, match=r"uses devices 0:0-3; this machine has 2"):
        executor_for(config("cluster.gpus=4x24GB"), host, tmp_path)
    assert executor_for(config("cluster.executor=driver"), host, tmp_path) is None


def test_devices_that_are_found_are_the_budget(config, host, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match="does not say how much memory 0, 1 has"):
        executor_for(config(), host, tmp_path)
    for module in (choice, __import__("roll_core.cluster.local", fromlist=["local"])):
        monkeypatch.setattr(module, "device_memory", lambda names: dict.fromkeys(names, 24 * 10**9))
    with executor_for(config(), host, tmp_path) as executor:
        assert len(executor.seats("train")) == 2
    with executor_for(config("cluster.gpus=none"), host, tmp_path) as executor:
        assert executor.seats("train") is None
    with pytest.raises(PlacementError) as caught:
        executor_for(config("cluster.train.gpus=4"), host, tmp_path)
    assert "'none' to plan for none" in caught.value.__notes__[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with executor_for(config(), host, tmp_path) as executor:
        assert executor.seats("train") is None
    with pytest.raises(ConfigError, match=r"cluster\.map names devices, and there are none"):
        executor_for(config("cluster.map={train: ['0:0'], rollout: ['0:0']}"), host, tmp_path)


# --- memory of devices ---


class Nvml:
    """The driver's library with two devices."""

    def __init__(self, status=0):
        self.total = {"0": 80, "GPU-1": 24}
        self.status = status
        self.is_open = False

    def nvmlInit_v2(self):
        self.is_open = self.status == 0
        return self.status

    def nvmlShutdown(self):
        self.is_open = False

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index.value + 1
        return 0 if str(index.value) in self.total else 2

    def nvmlDeviceGetHandleByUUID(self, name, handle):
        handle._obj.value = 100
        return 0 if name.decode() in self.total else 2

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.total = self.total["0" if handle.value == 1 else "GPU-1"]
        return 0


def test_memory_is_read_from_the_drivers_library(monkeypatch):
    library = Nvml()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert nvml.device_memory(["0", "GPU-1", "7"]) == {"0": 80, "GPU-1": 24}
    assert not library.is_open
    assert nvml.device_memory([]) == {}
    library.status = 9
    assert nvml.device_memory(["0"]) == {}

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert nvml.device_memory(["0"]) == {}


def test_devices_are_named_as_cuda_names_them():
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1, GPU-2 ,-1,3"}) == ("1", "GPU-2")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "-1"}) == ()
