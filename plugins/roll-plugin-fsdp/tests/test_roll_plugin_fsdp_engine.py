"""Whole runs: the same as with the strategy `local`, on both executors; and after a rank was killed."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsdp_pool import LIMIT_S
from safetensors.numpy import load_file

import roll_core as roll
from roll_core.api import export
from roll_core.assembly import Assembly
from roll_core.cluster import LocalExecutor
from roll_core.config.load import load_config
from roll_core.plugin.host import Host
from roll_plugin_fsdp.strategy import FsdpStrategy

STEPS = 4
LOCAL = {"use": "local", "precision": "float32", "device": "cpu"}
FSDP = {"use": "fsdp", "world_size": 2, "precision": "float32", "device": "cpu", "micro_tokens": 64}
ONE_PROCESS = {"executor": "driver"}
CHILDREN = {"executor": "local", "gpus": "none"}


@pytest.fixture(scope="module")
def train(tiny: Path, tmp_path_factory: pytest.TempPathFactory):
    """GRPO with a reference, a loss of the rollfile, and two optimiser steps a batch."""

    def run(strategy: dict[str, Any], cluster: dict[str, Any], **changes: Any) -> Path:
        rows = [{"prompt": letter, "reference": "digits"} for letter in "abcd"]
        config = {
            "name": "digits",
            "folder": str(tmp_path_factory.mktemp("runs") / "run"),
            "seed": 3,
            "steps": STEPS,
            "model": {"path": str(tiny)},
            "domains": {"letters": {"data": {"use": "rows", "rows": rows}, "verifier": "digits"}},
            "algorithm": {"advantage": "grpo", "loss": "clipped", "kl": {"coef": 0.01}},
            "batch": {"prompts": 4, "group_size": 4, "mini_batches": 2, "max_prompt_tokens": 32},
            "rollout": {
                "backend": {"use": "local", "precision": "float32", "device": "cpu"},
                "sampling": {"max_new_tokens": 6},
            },
            "train": {"strategy": strategy, "optim": {"lr": 3e-3}},
            "scoring": {"workers": 1},
            "cluster": cluster,
            "checkpoint": {"every": 1, "keep": 9},
            "faults": {"wait_s": 0},
            "trackers": ["jsonl"],
            "plugins": {"rollfile": str(Path(__file__).parent / "fsdp_task.py")},
        }
        return roll.train(**{**config, **changes}).folder

    return run


@pytest.fixture(scope="module")
def two_ranks(train) -> Path:
    return train(FSDP, CHILDREN)


def rows_of(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "transfer/"))} for row in rows]


def exported(folder: Path, to: Path) -> dict[str, np.ndarray]:
    loaded = load_config(folder / "config.yaml", [f"folder={folder}", "cluster={executor: driver}"])
    rollfile = loaded.config.plugins.rollfile
    assembly = Assembly(loaded, Host.discover(rollfile=Path(rollfile)))
    export(assembly, assembly.checkpoints.all()[-1], to)
    return load_file(to / "model.safetensors")


def test_a_run_is_that_of_the_local_strategy(train, two_ranks, tmp_path) -> None:
    single = train(LOCAL, ONE_PROCESS)
    layout = ("train/rows", "train/micro_batches")
    found, expected = rows_of(two_ranks), rows_of(single)
    assert [row["step"] for row in found] == [row["step"] for row in expected] == [1, 2, 3, 4]
    for ours, theirs in zip(found, expected, strict=True):
        for name in theirs.keys() - set(layout):
            assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=2e-5), (ours["step"], name)
        assert ours["train/rank_imbalance"] < 2
    ours, theirs = exported(two_ranks, tmp_path / "two"), exported(single, tmp_path / "one")
    start = max(float(np.abs(theirs[name]).max()) for name in theirs)
    for name, tensor in theirs.items():
        np.testing.assert_allclose(ours[name], tensor, atol=1e-4 * start, err_msg=name)


def test_a_run_goes_on_bit_for_bit_after_a_rank_was_killed(train, two_ranks, monkeypatch, caplog) -> None:
    """In the middle of the fourth step's update; the checkpoint of the third may still be on its way then."""
    executors: list[LocalExecutor] = []
    updates: list[float] = []
    init, update = FsdpStrategy.__init__, FsdpStrategy.update

    def remembered(self, setup, options, executor=None):
        executors.append(executor)
        init(self, setup, options, executor)

    def killed(self, *args):
        updates.append(time.monotonic())
        if len(updates) == 4:
            (victim,) = [worker for worker in executors[0].health() if (worker.role, worker.index) == ("actor", 1)]
            os.kill(victim.pid, signal.SIGSTOP)  # so that it cannot be done before
            threading.Thread(target=kill_when_busy, args=(executors[0], victim.pid), daemon=True).start()
        return update(self, *args)

    monkeypatch.setattr(FsdpStrategy, "__init__", remembered)
    monkeypatch.setattr(FsdpStrategy, "update", killed)
    folder = train(FSDP | {"step_timeout_s": 3000.0, "collective_timeout_s": 3000.0}, CHILDREN)
    assert "actor[1]" in caplog.text
    assert re.search("going on from step [23]", caplog.text)
    assert len(executors) == 2
    assert updates[4] - updates[3] < LIMIT_S, "every bound is 3000 s"
    assert rows_of(folder) == rows_of(two_ranks)
    assert not executors[0].health()


def kill_when_busy(executor: LocalExecutor, pid: int) -> None:
    """Kill a rank as soon as it owes an answer."""
    while not any(worker.pid == pid and worker.busy_with.startswith("'update'") for worker in executor.health()):
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def ray_cluster():
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"include_dashboard": False, "object_store_memory": 100_000_000, "log_to_driver": False}
        ray.init("local", num_cpus=4, **options)
        yield
        ray.shutdown()


def test_ray_starts_the_same_ranks(train, two_ranks, ray_cluster) -> None:
    folder = train(FSDP, {"executor": "ray", "gpus": "none"}, steps=2)
    assert rows_of(folder) == rows_of(two_ranks)[:2]
