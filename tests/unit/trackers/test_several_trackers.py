"""All installed trackers on one run at once, and each of them when the run goes on from a checkpoint."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from roll_core.contracts import RunInfo, Tracker
from roll_core.plugin.host import Host
from roll_core.testing.fakes import make_group

OPTIONS: dict[str, dict[str, Any]] = {
    "console": {},
    "jsonl": {},
    "parquet": {},
    "tensorboard": {"samples_every": 1},
    "wandb": {
        "mode": "offline",
        "samples_every": 1,
        "settings": {"silent": True, "x_disable_stats": True, "x_disable_machine_info": True},
    },
    "swanlab": {
        "mode": "offline",
        "samples_every": 1,
        "settings": {"probe": {"requirements": False, "hardware": False, "monitor": False, "git": False}},
    },
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty home and working directory, which have to stay empty."""
    for name in [n for n in os.environ if n.startswith(("WANDB_", "SWANLAB_", "XDG_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    yield
    assert list(folder.rglob("*")) == []


def build(names: Sequence[str]) -> list[Tracker]:
    host = Host.discover()
    return [host.build("trackers", name, OPTIONS[name], place=f"trackers.{i}") for i, name in enumerate(names)]


def follow(names: Sequence[str], folder: Path, steps: Sequence[int], status: str, resumed_from: int | None) -> None:
    """Build trackers and tell them what the engine tells them."""
    trackers = build(names)
    folder.mkdir(exist_ok=True)
    run = RunInfo("abc123", "small", folder, {"seed": 0, "domains": {"math": {}}}, {}, resumed_from, 4)
    for tracker in trackers:
        tracker.start(run)
    for step in steps:
        for tracker in trackers:
            tracker.log_rollouts(step, [make_group([0.0, None, 1.0], ticket=step, domain="math")])
        for tracker in trackers:
            tracker.log(step, {"reward/score/math": step / 4, "time/step_s": 1.0})
    for tracker in trackers:
        tracker.finish(status)


Points = list[tuple[int, float | None]]
"""(step, score) as a tracker kept them; None where it keeps rollouts and no metrics."""


def of_jsonl(folder: Path) -> Points:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["reward/score/math"]) for row in rows]


def of_parquet(folder: Path) -> Points:
    files = sorted((folder / "rollouts").glob("*.parquet"))
    return [(step, None) for file in files for step in sorted({row["step"] for row in pq.read_table(file).to_pylist()})]


def of_tensorboard(folder: Path) -> Points:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    from tensorboard.util.tensor_util import make_ndarray

    events = accumulators.EventAccumulator(str(folder / "tensorboard"), tensor_size_guidance={"scalars": 0})
    events.Reload()
    return [(e.step, make_ndarray(e.tensor_proto).item()) for e in events.Tensors("reward/score/math")]


def of_wandb(folder: Path) -> Points:
    """W&B's log has no reader in Python; tables of samples stand beside it, one a step."""
    tables = folder.glob("wandb/offline-run-*-abc123*/files/media/table/*.table.json")
    steps = [json.loads(table.read_text())["data"][0][0] for table in tables]
    return [(step, None) for step in sorted(steps)]


def of_swanlab(folder: Path) -> Points:
    stores = pytest.importorskip("swanlab.sdk.internal.core_python.store")
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    found = []
    for file in folder.glob("swanlog/run-*-abc123/*.swanlab"):
        reader = stores.DataStoreReader()
        reader.open(file)
        scalars = [record.scalar for record in map(Record.FromString, reader)]
        reader.close()
        found += [(s.step, s.value.number) for s in scalars if s.key == "reward/score/math"]
    return sorted(found)


READERS: dict[str, Callable[[Path], Points]] = {
    "jsonl": of_jsonl,
    "parquet": of_parquet,
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "swanlab": of_swanlab,
}


def test_all_at_once_record_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), sys.excepthook, sys.exit
    threads = set(threading.enumerate())
    follow(list(OPTIONS), tmp_path / "run", (1, 2, 3), "finished", None)
    for name, read in READERS.items():
        has_metrics = name not in ("parquet", "wandb")
        assert read(tmp_path / "run") == [(step, step / 4 if has_metrics else None) for step in (1, 2, 3)], name
    assert "step 3/4  score math 0.75" in capsys.readouterr().out
    assert (signal.getsignal(signal.SIGINT), sys.excepthook, sys.exit) == before
    left = {type(thread).__name__ for thread in set(threading.enumerate()) - threads}
    assert left <= {"InotifyFD"}  # watchdog, used by swanlab, keeps one idle thread per process
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "run"]


@pytest.mark.parametrize("name", [n for n in OPTIONS if n != "console"])
def test_resume_replaces_the_steps_after_the_checkpoint(tmp_path: Path, name: str) -> None:
    """Trackers with a server, offline, keep the steps after the checkpoint in the folder of the first start."""
    follow([name], tmp_path / "run", (1, 2, 3), "interrupted", None)
    follow([name], tmp_path / "run", (3, 4), "finished", 2)
    steps = [step for step, _ in READERS[name](tmp_path / "run")]
    again = [3] if name in ("wandb", "swanlab") else []
    assert sorted(steps) == sorted([1, 2, 3, 4, *again])


def test_a_tracker_that_never_started_can_be_finished(tmp_path: Path) -> None:
    for tracker in build(list(OPTIONS)):
        tracker.log(1, {"reward/score/math": 1.0})
        tracker.log_rollouts(1, [make_group([1.0])])
        tracker.finish("failed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
