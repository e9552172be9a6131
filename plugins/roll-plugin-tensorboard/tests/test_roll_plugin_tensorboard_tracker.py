"""The tracker against the real library: what it wrote is read back by the loader of TensorBoard's server."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pydantic
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.text.text_plugin import text_array_to_html
from tensorboard.util import tensor_util

from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError
from roll_core.testing import make_group
from roll_plugin_tensorboard.plugin import roll_register_trackers
from roll_plugin_tensorboard.tracker import TensorBoardTracker

CONFIG = {"seed": 3, "strict": False, "folder": None, "domains": {"math": {"weight": 0.5}}, "filters": ["a", {"b": 1}]}
PLUGINS = {"math": "roll-verifier-math 0.1.0"}


def tracker(**options: object) -> TensorBoardTracker:
    (component,) = roll_register_trackers()
    built = component.build(options)
    assert isinstance(built, TensorBoardTracker)
    return built


def info(folder: Path, resumed_from: int | None = None, **config: object) -> RunInfo:
    return RunInfo("abc123", "small", folder, {**CONFIG, **config}, PLUGINS, resumed_from, 10)


def read(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), tensor_size_guidance={"scalars": 0, "text": 0})
    accumulator.Reload()
    return accumulator


def points(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, tensor_util.make_ndarray(event.tensor_proto).item()) for event in events.Tensors(tag)]


def texts(events: EventAccumulator, tag: str) -> list[tuple[int, np.ndarray]]:
    return [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]


def outcome(events: EventAccumulator) -> int:
    content = events.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
    return int(metadata.parse_session_end_info_plugin_data(content).status)


def test_metrics_come_back_by_name_and_step(tmp_path: Path) -> None:
    built = tracker()
    built.start(info(tmp_path))
    built.log(0, {"eval/accuracy/math": 0.25})
    for step in (1, 2, 3):
        built.log(step, {"reward/score/math": step / 4, "reward/score/json": math.nan, "big": 1e300, "small": -1e300})
    built.log(4, {})
    built.finish("finished")
    events = read(tmp_path / "tensorboard")
    assert points(events, "eval/accuracy/math") == [(0, 0.25)]
    assert points(events, "reward/score/math") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert [math.isnan(value) for _, value in points(events, "reward/score/json")] == [True] * 3
    assert points(events, "big")[0] == (1, math.inf)
    assert points(events, "small")[0] == (1, -math.inf)


def test_steps_that_come_late_are_kept(tmp_path: Path) -> None:
    built = tracker()
    built.start(info(tmp_path))
    for step in (5, 5, 3, 6):
        built.log(step, {"reward/score": float(step)})
    built.finish("finished")
    assert points(read(tmp_path / "tensorboard"), "reward/score") == [(5, 5.0), (5, 5.0), (3, 3.0), (6, 6.0)]


def test_config_is_text_and_hyperparameters(tmp_path: Path) -> None:
    built = tracker()
    built.start(info(tmp_path))
    built.finish("finished")
    events = read(tmp_path / "tensorboard")
    ((step, text),) = texts(events, "run/config")
    assert step == 0
    assert json.loads(text.item().decode()) == {**CONFIG, "versions": PLUGINS}
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    assert session.group_name == "abc123"
    assert session.hparams["seed"].number_value == 3
    assert session.hparams["strict"].HasField("bool_value")
    assert session.hparams["domains.math.weight"].number_value == 0.5
    assert session.hparams["filters"].string_value == '["a", {"b": 1}]'
    assert session.hparams["versions.math"].string_value == "roll-verifier-math 0.1.0"
    assert "folder" not in session.hparams


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("finished", Status.STATUS_SUCCESS),
        ("failed", Status.STATUS_FAILURE),
        ("interrupted", Status.STATUS_UNKNOWN),
    ],
)
def test_the_outcome_is_marked(tmp_path: Path, status: str, expected: int) -> None:
    built = tracker()
    built.start(info(tmp_path))
    built.log(7, {"a": 1.0})
    built.finish(status)
    built.finish("finished")
    events = read(tmp_path / "tensorboard")
    assert outcome(events) == expected
    assert [(step, text.item()) for step, text in texts(events, "run/status")] == [(7, status.encode())]


def test_resume_goes_on_in_the_same_folder_and_replaces_later_steps(tmp_path: Path) -> None:
    first = tracker(samples_every=1)
    first.start(info(tmp_path, steps=4))
    for step in (1, 2, 3, 4):
        first.log_rollouts(step, [make_group([1.0])])
        first.log(step, {"reward/score": step / 4})
    first.finish("failed")
    second = tracker(samples_every=1)
    second.start(info(tmp_path, resumed_from=2, steps=9))
    for step in (3, 4, 5):
        second.log_rollouts(step, [make_group([1.0])])
        second.log(step, {"reward/score": -step / 4})
    second.finish("finished")
    events = read(tmp_path / "tensorboard")
    assert points(events, "reward/score") == [(1, 0.25), (2, 0.5), (3, -0.75), (4, -1.0), (5, -1.25)]
    assert [step for step, _ in texts(events, "rollouts")] == [1, 2, 3, 4, 5]
    assert [(step, json.loads(t.item())["steps"]) for step, t in texts(events, "run/config")] == [(0, 4), (2, 9)]
    assert outcome(events) == Status.STATUS_SUCCESS
    assert [(step, text.item()) for step, text in texts(events, "run/status")] == [(5, b"finished")]


def test_resume_from_the_untrained_model_drops_everything_but_step_0(tmp_path: Path) -> None:
    for resumed_from in (None, 0):
        built = tracker()
        built.start(info(tmp_path, resumed_from=resumed_from))
        built.log(0, {"a": 0.0})
        built.log(1, {"a": 1.0})
        built.finish("finished")
    assert points(read(tmp_path / "tensorboard"), "a") == [(0, 0.0), (0, 0.0), (1, 1.0)]


def test_samples_are_a_table_that_shows_text_as_it_is(tmp_path: Path) -> None:
    built = tracker(samples=3, samples_every=2)
    built.start(info(tmp_path))
    groups = [
        make_group([None, 0.5], domain="math", ticket=1, responses=["**a**\n\n<b>x</b> | y", "\ud800"]),
        make_group([1.0], domain="json", ticket=2, rewards=[1.25]),
    ]
    for step in (1, 2, 3):
        built.log_rollouts(step, groups)
    built.finish("finished")
    tables = texts(read(tmp_path / "tensorboard"), "rollouts")
    assert [step for step, _ in tables] == [1, 3]
    table = [[cell.decode() for cell in row] for row in tables[0][1]]
    assert table[0] == ["step", "domain", "prompt", "response", "status", "score", "reward"]
    assert table[1][:2] == ["1", "math"]
    assert table[1][4:] == ["error", "-", "-"]
    assert table[2][1:] == ["json", "    user: 1+1=", "    answer 0 scores 1.0", "correct", "1.000", "1.250"]
    assert table[3][3] == "    ?"
    page = text_array_to_html(tables[0][1], enable_markdown=True)
    assert "**a**" in page
    assert "&lt;b&gt;x&lt;/b&gt; | y" in page


def test_another_folder_can_be_given(tmp_path: Path) -> None:
    built = tracker(log_dir=str(tmp_path / "elsewhere"))
    built.start(info(tmp_path / "run"))
    built.finish("finished")
    assert list((tmp_path / "elsewhere").glob("events.out.tfevents.*"))
    assert not (tmp_path / "run").exists()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    environment, threads = dict(os.environ), set(threading.enumerate())
    built = tracker()
    built.finish("failed")
    built.log(1, {"a": 1.0})
    built.start(info(tmp_path))
    built.finish("finished")
    built.log(1, {"a": 1.0})
    built.log_rollouts(1, [make_group([1.0])])
    assert set(threading.enumerate()) <= threads
    assert dict(os.environ) == environment
    assert "a" not in read(tmp_path / "tensorboard").Tags()["tensors"]


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "roll_plugin_tensorboard.writer", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(ComponentError, match="pip install tensorboard"):
        TensorBoardTracker().start(info(tmp_path))


@pytest.mark.parametrize("options", [{"samples": -1}, {"samples_every": 0}, {"flush_secs": 0}, {"logdir": "x"}])
def test_bad_options_are_found_before_the_run(options: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError, match=next(iter(options))):
        tracker(**options)


def test_the_library_is_imported_by_start_alone_and_torch_never(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from roll_core.contracts import RunInfo; import roll_plugin_tensorboard.tracker as t; "
        "tracker = t.TensorBoardTracker(); print('tensorboard' in sys.modules); "
        f"tracker.start(RunInfo('i', 'n', pathlib.Path({str(tmp_path)!r}), {{}}, {{}})); tracker.finish('finished'); "
        "print('tensorboard' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
