"""The tracker against the real library, offline: what it wrote is read back from W&B's own files."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError
from roll_core.testing import make_group
from roll_plugin_wandb.plugin import roll_register_trackers
from roll_plugin_wandb.tracker import WandbTracker

QUIET = {"silent": True, "x_disable_stats": True, "x_disable_machine_info": True}
CONFIG = {"seed": 3, "domains": {"math": {"weight": 0.5}}, "filters": [], "folder": None, "plugins": {"blocked": []}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home and working directory, which have to stay empty."""
    for name in [n for n in os.environ if n.startswith(("WANDB_", "XDG_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    yield folder
    assert list(folder.rglob("*")) == []


def tracker(**options: object) -> WandbTracker:
    (component,) = roll_register_trackers()
    built = component.build({"mode": "offline", "settings": QUIET, **options})
    assert isinstance(built, WandbTracker)
    return built


def info(tmp_path: Path, resumed_from: int | None = None) -> RunInfo:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    return RunInfo("abc123", "small", folder, CONFIG, {"math": "roll-verifier-math 0.1.0"}, resumed_from, 10)


class Stored:
    """A `.wandb` file: a log in LevelDB's format of W&B's own messages."""

    def __init__(self, file: Path) -> None:
        self.records = [Record.FromString(data) for data in self._chunks(file.read_bytes())]
        self.history = [
            {key(item): json.loads(item.value_json) for item in r.history.item}
            for r in self.records
            if r.HasField("history")
        ]
        self.config = {
            item.key: json.loads(item.value_json)
            for r in self.records
            for item in (*r.run.config.update, *r.config.update)
        }
        self.summary = {key(i): json.loads(i.value_json) for r in self.records for i in r.summary.update}
        (self.run,) = [r.run for r in self.records if r.HasField("run")]
        self.exit_code = [r.exit.exit_code for r in self.records if r.HasField("exit")]

    def series(self, name: str) -> list[tuple[int, float]]:
        return [(row["step"], row[name]) for row in self.history if name in row]

    @staticmethod
    def _chunks(data: bytes) -> Iterator[bytes]:
        at, parts = 7, b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
                continue
            _, length, kind = struct.unpack_from("<IHB", data, at)
            parts += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):
                yield parts
                parts = b""


def key(item: object) -> str:
    return item.key or "/".join(item.nested_key)  # type: ignore[attr-defined]  # a protobuf message


def stored(tmp_path: Path) -> list[Stored]:
    """Every run in the order it was started."""
    return [Stored(file) for file in sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))]


def test_config_metrics_and_status_are_in_the_run(tmp_path: Path) -> None:
    built = tracker(project="p", group="g", job_type="rl", tags=["a", "b"], notes="n", samples=0)
    built.start(info(tmp_path))
    built.log(0, {"eval/accuracy/math": 0.25})
    built.log(1, {"reward/score/math": 0.5, "reward/score/json": math.nan, "train/grad_norm": math.inf})
    built.log(2, {"reward/score/math": 0.75})
    built.finish("finished")
    (run,) = stored(tmp_path)
    assert (run.run.run_id, run.run.project, run.run.display_name) == ("abc123", "p", "small")
    assert (run.run.run_group, run.run.job_type, run.run.notes, list(run.run.tags)) == ("g", "rl", "n", ["a", "b"])
    assert {k: run.config[k] for k in CONFIG} == CONFIG
    assert run.config["versions"] == {"math": "roll-verifier-math 0.1.0"}
    assert run.series("eval/accuracy/math") == [(0, 0.25)]
    assert run.series("reward/score/math") == [(1, 0.5), (2, 0.75)]
    assert str(run.series("reward/score/json")) == "[(1, nan)]"
    assert run.series("train/grad_norm") == [(1, math.inf)]
    assert run.summary["status"] == "finished"
    assert run.exit_code == [0]


def test_the_engines_step_is_the_x_axis_and_late_steps_are_kept(tmp_path: Path) -> None:
    built = tracker(samples=2)
    built.start(info(tmp_path))
    for step in (1, 5, 5, 3, 6):
        built.log_rollouts(step, [make_group([1.0])])
        built.log(step, {"reward/score": float(step)})
    built.finish("finished")
    (run,) = stored(tmp_path)
    assert run.series("reward/score") == [(1, 1.0), (5, 5.0), (5, 5.0), (3, 3.0), (6, 6.0)]
    metrics = {r.metric.name or r.metric.glob_name: r.metric for r in run.records if r.HasField("metric")}
    assert metrics["*"].step_metric == "step"


def test_samples_are_a_table_every_nth_step(tmp_path: Path) -> None:
    built = tracker(samples=3, samples_every=2)
    built.start(info(tmp_path))
    groups = [
        make_group([None, 0.5], domain="math", ticket=1, responses=["a|b", "**c**"]),
        make_group([1.0], domain="json", ticket=2, rewards=[1.25]),
    ]
    for step in (1, 2, 3):
        built.log_rollouts(step, groups)
    built.finish("finished")
    (run,) = stored(tmp_path)
    assert [row["step"] for row in run.history] == [1, 3]
    (file,) = {row["rollouts/path"] if "rollouts/path" in row else row["rollouts"]["path"] for row in run.history[:1]}
    (table,) = (tmp_path / "run" / "wandb").glob(f"offline-run-*/files/{file}")
    content = json.loads(table.read_text())
    assert content["columns"] == ["step", "domain", "prompt", "response", "status", "score", "reward"]
    assert content["data"] == [
        [1, "math", "user: 1+1=", "a|b", "error", None, None],
        [1, "json", "user: 1+1=", "answer 0 scores 1.0", "correct", 1.0, 1.25],
        [1, "math", "user: 1+1=", "**c**", "incorrect", 0.5, 0.5],
    ]


def test_resume_continues_the_same_run(tmp_path: Path) -> None:
    first = tracker(project="p")
    first.start(info(tmp_path))
    first.log(1, {"reward/score": 0.1})
    first.finish("interrupted")
    second = tracker(project="p")
    second.start(info(tmp_path, resumed_from=1))
    second.log(2, {"reward/score": 0.2})
    second.finish("finished")
    runs = sorted(stored(tmp_path), key=lambda run: run.history[0]["step"])
    assert [(r.run.run_id, r.run.project) for r in runs] == [("abc123", "p")] * 2
    assert [point for r in runs for point in r.series("reward/score")] == [(1, 0.1), (2, 0.2)]
    assert [r.exit_code for r in runs] == [[255], [0]]
    assert [r.summary["status"] for r in runs] == ["interrupted", "finished"]


def test_a_failed_run_is_marked_and_may_be_finished_twice(tmp_path: Path) -> None:
    built = tracker()
    built.start(info(tmp_path))
    built.finish("failed")
    built.finish("finished")
    built.log(1, {"a": 1.0})
    built.log_rollouts(1, [make_group([1.0])])
    (run,) = stored(tmp_path)
    assert run.exit_code == [1]
    assert run.history == []


def children() -> list[str]:
    """Command lines of this process's children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                found.append((folder / "cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
    return found


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    hooks, threads = (sys.exit, sys.excepthook), set(threading.enumerate())

    def environment() -> dict[str, str]:
        return {n: v for n, v in os.environ.items() if n.startswith("WANDB") and n != "WANDB_SERVICE"}

    built = tracker(samples_every=1)
    built.start(info(tmp_path))
    assert any("wandb-core" in child for child in children())
    assert (environment(), sys.exit, sys.excepthook) == ({}, *hooks)
    built.log_rollouts(1, [make_group([1.0])])
    assert environment() == {}
    built.finish("finished")
    assert (environment(), sys.exit, sys.excepthook) == ({}, *hooks)
    assert set(threading.enumerate()) <= threads
    assert not any("wandb-core" in child for child in children())
    assert wandb.run is None
    assert "WANDB_SERVICE" not in os.environ


def test_a_run_of_the_user_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("WANDB_CACHE_DIR", str(folder))
    mine = wandb.init(mode="offline", dir=folder, reinit="create_new", settings=wandb.Settings(console="off", **QUIET))
    try:
        built = tracker()
        built.start(info(tmp_path))
        built.log(1, {"a": 1.0})
        built.finish("finished")
        mine.log({"b": 2.0})
    finally:
        mine.finish()
        wandb.teardown()
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    assert [row["b"] for row in Stored(file).history] == [2.0]
    assert stored(tmp_path)[0].series("a") == [(1, 1.0)]


def test_another_folder_can_be_given(tmp_path: Path) -> None:
    built = tracker(dir=str(tmp_path / "elsewhere"))
    built.start(info(tmp_path))
    built.finish("finished")
    assert list((tmp_path / "elsewhere" / "wandb").glob("offline-run-*-abc123"))
    assert list((tmp_path / "run").iterdir()) == []


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    built = tracker(mode="disabled", samples_every=1)
    built.start(info(tmp_path))
    built.log(1, {"a": 1.0})
    built.log_rollouts(1, [make_group([1.0])])
    built.finish("finished")
    assert list((tmp_path / "run").rglob("*.wandb")) == []


def test_without_a_login_the_error_says_what_to_do(tmp_path: Path) -> None:
    built = tracker(mode="online", settings={**QUIET, "base_url": "http://127.0.0.1:9"})
    with pytest.raises(ComponentError, match=r"could not start run 'abc123'.*wandb login.*mode: offline"):
        built.start(info(tmp_path))
    built.finish("failed")
    assert not any("wandb-core" in child for child in children())


def test_settings_that_wandb_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"(?s)refuses `settings` of the tracker 'wandb'.*consle"):
        tracker(settings={"consle": "off"}).start(info(tmp_path))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ComponentError, match="pip install wandb"):
        WandbTracker().start(info(tmp_path))


@pytest.mark.parametrize("options", [{"mode": "ofline"}, {"samples": -1}, {"samples_every": 0}, {"porject": "p"}])
def test_bad_options_are_found_before_the_run(options: dict[str, object]) -> None:
    (component,) = roll_register_trackers()
    with pytest.raises(pydantic.ValidationError, match=next(iter(options))):
        component.build(options)


def test_the_library_is_imported_by_start_alone() -> None:
    code = "import sys, roll_plugin_wandb.tracker as t; t.WandbTracker(); print('wandb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
