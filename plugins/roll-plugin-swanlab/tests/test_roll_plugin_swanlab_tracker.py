"""The tracker against the real library, offline: what it wrote is read back with SwanLab's own reader."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest
import swanlab
import yaml
from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.proto.swanlab.run.v1.run_pb2 import RunState
from swanlab.sdk.internal.core_python.store import DataStoreReader

from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError, UnknownNameError
from roll_core.testing import make_group
from roll_plugin_swanlab.conformance import QUICK
from roll_plugin_swanlab.plugin import roll_register_trackers
from roll_plugin_swanlab.tracker import SwanLabTracker

CONFIG = {"seed": 3, "domains": {"math": {"weight": 0.5, "data": None}}, "filters": [], "folder": None}
PLUGINS = {"math": "roll-verifier-math 0.1.0"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home and working directory, which have to stay empty."""
    for name in [n for n in os.environ if n.startswith("SWANLAB_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    yield folder
    assert list(folder.rglob("*")) == []
    assert not swanlab.has_run()


def tracker(**options: object) -> SwanLabTracker:
    (component,) = roll_register_trackers()
    built = component.build({"mode": "offline", "settings": QUICK, **options})
    assert isinstance(built, SwanLabTracker)
    return built


def info(tmp_path: Path, resumed_from: int | None = None) -> RunInfo:
    return RunInfo("abc123", "small", tmp_path / "run", CONFIG, PLUGINS, resumed_from, 10)


class Stored:
    """One folder of SwanLab: its log of records, its config, its tables."""

    def __init__(self, folder: Path) -> None:
        (file,) = folder.glob("*.swanlab")
        reader = DataStoreReader()
        reader.open(file)
        self.records = [Record.FromString(data) for data in reader]
        reader.close()
        self.folder = folder
        self.start = self.records[0].start
        (self.finish,) = [r.finish for r in self.records if r.HasField("finish")]
        self.config = {k: v["value"] for k, v in yaml.safe_load((folder / "files" / "config.yaml").read_text()).items()}

    def series(self, name: str) -> list[tuple[int, float]]:
        scalars = [r.scalar for r in self.records if r.HasField("scalar") and r.scalar.key == name]
        return [(s.step, s.value.number) for s in scalars]

    def tables(self) -> dict[int, dict[str, list[dict[str, object]]]]:
        media = [r.media for r in self.records if r.HasField("media") and r.media.key == "rollouts"]
        folder = self.folder / "media" / "echarts"
        return {m.step: json.loads((folder / m.value.items[0].filename).read_text()) for m in media}


def stored(tmp_path: Path) -> list[Stored]:
    return [Stored(folder) for folder in sorted((tmp_path / "run" / "swanlog").glob("run-*"))]


def test_config_metrics_and_outcome_are_in_the_run(tmp_path: Path) -> None:
    built = tracker(project="p", workspace="w", description="d", group="g", job_type="rl", tags=["a", "b"], samples=0)
    built.start(info(tmp_path))
    built.log(0, {"eval/accuracy/math": 0.25})
    built.log(1, {"reward/score/math": 0.5, "reward/score/json": math.nan, "train/grad_norm": math.inf})
    built.log(2, {"reward/score/math": 0.75})
    built.finish("finished")
    (run,) = stored(tmp_path)
    start = run.start
    assert (start.id, start.project, start.workspace, start.name) == ("abc123", "p", "w", "small")
    assert (start.description, start.group, start.job_type, list(start.tags)) == ("d", "g", "rl", ["a", "b"])
    assert run.config == {**{k: v for k, v in CONFIG.items() if v is not None}, "versions": PLUGINS}
    assert run.series("eval/accuracy/math") == [(0, 0.25)]
    assert run.series("reward/score/math") == [(1, 0.5), (2, 0.75)]
    assert str(run.series("reward/score/json")) == "[(1, nan)]"
    assert run.series("train/grad_norm") == [(1, math.inf)]
    assert run.finish.state == RunState.RUN_STATE_FINISHED


def test_steps_are_the_engines_and_late_ones_are_kept(tmp_path: Path) -> None:
    built = tracker(samples_every=1)
    built.start(info(tmp_path))
    for step in (1, 5, 5, 3, 6):
        built.log_rollouts(step, [make_group([1.0])])
        built.log(step, {"reward/score": float(step)})
    built.finish("finished")
    (run,) = stored(tmp_path)
    assert run.series("reward/score") == [(1, 1.0), (5, 5.0), (3, 3.0), (6, 6.0)]
    assert list(run.tables()) == [1, 5, 3, 6]


def test_samples_are_a_table_every_nth_step(tmp_path: Path) -> None:
    built = tracker(samples=3, samples_every=2)
    built.start(info(tmp_path))
    groups = [
        make_group([None, 0.5], domain="math", ticket=1, responses=["a|b", "\ud800"]),
        make_group([1.0], domain="json", ticket=2, rewards=[1.25], responses=["c"]),
    ]
    for step in (1, 2, 3):
        built.log_rollouts(step, groups)
    built.finish("finished")
    tables = stored(tmp_path)[0].tables()
    assert list(tables) == [1, 3]
    shared = {"step": 1, "prompt": "user: 1+1="}
    assert tables[1]["rowData"] == [
        {**shared, "domain": "math", "response": "a|b", "status": "error", "score": None, "reward": None},
        {
            **shared,
            "domain": "json",
            "response": "c",
            "status": "correct",
            "score": 1.0,
            "reward": 1.25,
        },
        {**shared, "domain": "math", "response": "?", "status": "incorrect", "score": 0.5, "reward": 0.5},
    ]


def test_resume_continues_the_same_run(tmp_path: Path) -> None:
    for resumed_from, step, status in ((None, 1, "interrupted"), (1, 2, "finished")):
        built = tracker(project="p")
        built.start(info(tmp_path, resumed_from))
        built.log(step, {"reward/score": step / 4})
        built.finish(status)
    runs = sorted(stored(tmp_path), key=lambda run: run.series("reward/score"))
    assert [(r.start.id, r.start.project) for r in runs] == [("abc123", "p")] * 2
    assert [point for r in runs for point in r.series("reward/score")] == [(1, 0.25), (2, 0.5)]
    assert [r.finish.state for r in runs] == [RunState.RUN_STATE_ABORTED, RunState.RUN_STATE_FINISHED]


def test_the_server_is_asked_for_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(swanlab, "init", lambda **options: asked.update(options))
    tracker(mode="online").start(info(tmp_path, resumed_from=4))
    assert (asked["id"], asked["resume"], asked["mode"]) == ("abc123", "allow", "online")


def test_a_failed_run_is_marked_and_may_be_finished_twice(tmp_path: Path) -> None:
    built = tracker()
    built.finish("failed")
    built.log(1, {"a": 1.0})
    built.start(info(tmp_path))
    built.finish("failed")
    built.finish("finished")
    built.log(1, {"a": 1.0})
    built.log_rollouts(1, [make_group([1.0])])
    (run,) = stored(tmp_path)
    assert (run.finish.state, run.finish.error) == (RunState.RUN_STATE_CRASHED, "run failed")
    assert run.series("a") == []


def test_nothing_is_left_behind_and_ctrl_c_stays_the_engines(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), sys.excepthook, dict(os.environ)
    threads = set(threading.enumerate())
    built = tracker()
    built.start(info(tmp_path))
    assert (signal.getsignal(signal.SIGINT), sys.excepthook, dict(os.environ)) == before
    built.log(1, {"a": 1.0})
    built.finish("finished")
    assert (signal.getsignal(signal.SIGINT), sys.excepthook, dict(os.environ)) == before
    left = set(threading.enumerate()) - threads
    assert {type(thread).__name__ for thread in left} <= {"InotifyFD"}  # watchdog keeps one idle thread per process


def test_it_works_outside_the_main_thread(tmp_path: Path) -> None:
    def run() -> None:
        built = tracker()
        built.start(info(tmp_path))
        built.log(1, {"a": 1.0})
        built.finish("finished")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert stored(tmp_path)[0].series("a") == [(1, 1.0)]


def test_a_second_active_run_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    first, second = tracker(), tracker()
    first.start(info(tmp_path))
    with pytest.raises(ComponentError, match="one active run per process"):
        second.start(info(tmp_path))
    second.finish("failed")
    first.log(1, {"a": 1.0})
    first.finish("finished")
    assert stored(tmp_path)[0].series("a") == [(1, 1.0)]


def test_another_folder_can_be_given(tmp_path: Path) -> None:
    built = tracker(log_dir=str(tmp_path / "elsewhere"))
    built.start(info(tmp_path))
    built.finish("finished")
    assert list((tmp_path / "elsewhere").glob("run-*-abc123"))
    assert not (tmp_path / "run").exists()


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    built = tracker(mode="disabled", samples_every=1)
    built.start(info(tmp_path))
    built.log(1, {"a": 1.0})
    built.log_rollouts(1, [make_group([1.0])])
    built.finish("finished")
    assert [p for p in (tmp_path / "run").rglob("*") if p.is_file()] == []


def test_without_a_login_the_error_says_what_to_do(tmp_path: Path) -> None:
    built = tracker(mode="online", settings={**QUICK, "interactive": False, "api_host": "http://127.0.0.1:9"})
    with pytest.raises(ComponentError, match=r"could not start run 'abc123'.*swanlab login.*mode: offline"):
        built.start(info(tmp_path))
    built.finish("failed")


def test_settings_that_swanlab_would_ignore_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no setting of SwanLab named 'prob' .*did you mean 'probe'"):
        tracker(settings={"prob": {"git": False}}).start(info(tmp_path))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with pytest.raises(ComponentError, match="pip install swanlab"):
        SwanLabTracker().start(info(tmp_path))


@pytest.mark.parametrize("options", [{"mode": "ofline"}, {"samples": -1}, {"samples_every": 0}, {"porject": "p"}])
def test_bad_options_are_found_before_the_run(options: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError, match=next(iter(options))):
        tracker(**options)


def test_the_library_is_imported_by_start_alone() -> None:
    code = "import sys, roll_plugin_swanlab.tracker as t; t.SwanLabTracker(); print('swanlab' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
