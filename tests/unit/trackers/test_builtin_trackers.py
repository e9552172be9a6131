"""Console, jsonl and parquet trackers."""

from __future__ import annotations

import io
import json
import math
import threading
from pathlib import Path

import datasets
import duckdb
import pytest
from rich.console import Console

from roll_core.builtin.trackers.console import ConsoleTracker, step_line
from roll_core.builtin.trackers.jsonl import JsonlTracker
from roll_core.builtin.trackers.parquet import ParquetTracker
from roll_core.contracts import RunInfo
from roll_core.testing.fakes import make_group


def info(folder: Path, resumed_from: int | None = None) -> RunInfo:
    return RunInfo("id", "test", folder, {}, {}, resumed_from, total_steps=4)


def test_jsonl_writes_null_for_nan_and_drops_lines_after_the_checkpoint(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(info(tmp_path))
    for step in (1, 2, 3):
        tracker.log(step, {"a": math.nan if step == 2 else float(step), "b": math.inf})
    tracker.finish("failed")
    tracker.log(9, {"a": 1.0})
    again = JsonlTracker()
    again.start(info(tmp_path, resumed_from=2))
    again.log(3, {"a": 30.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(r["step"], r["a"]) for r in rows] == [(1, 1.0), (2, None), (3, 30.0)]
    assert rows[0]["b"] is None


def test_jsonl_of_a_new_run_begins_empty_and_a_line_cut_off_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a')
    tracker = JsonlTracker()
    tracker.start(info(tmp_path, resumed_from=2))
    tracker.log(3, {"a": 3.0})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 3]
    assert "line 2 is no JSON" in caplog.text
    JsonlTracker().start(info(tmp_path))
    assert file.read_text() == ""
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_parquet_is_read_by_datasets_and_duckdb(tmp_path: Path) -> None:
    tracker = ParquetTracker()
    tracker.start(info(tmp_path))
    tracker.log_rollouts(1, [make_group([1.0, 0.0, None], ticket=7, domain="math")])
    tracker.log_rollouts(2, [make_group([0.5], ticket=8, domain="json")])
    pattern = str(tmp_path / "rollouts" / "*.parquet")
    query = f"select status, score, len(token_ids) from '{pattern}' order by step, sample"
    assert duckdb.sql(query).fetchall() == [
        ("correct", 1.0, 7),
        ("incorrect", 0.0, 8),
        ("error", None, 9),
        ("incorrect", 0.5, 7),
    ]
    table = datasets.load_dataset("parquet", data_files=pattern, split="train", cache_dir=str(tmp_path / "cache"))
    assert table[0]["rewards"] == [{"component": "fake", "value": 1.0, "weight": 1.0}]
    assert table[2]["reward"] is None
    again = ParquetTracker(tokens=False)
    again.start(info(tmp_path, resumed_from=1))
    assert [p.name for p in (tmp_path / "rollouts").iterdir()] == ["step-00000001.parquet"]


def test_parquet_of_a_new_run_begins_empty_and_half_written_files_go(tmp_path: Path) -> None:
    tracker = ParquetTracker()
    tracker.start(info(tmp_path))
    tracker.log_rollouts(1, [make_group([1.0])])
    (tmp_path / "rollouts" / "step-00000002.partial").write_bytes(b"PAR1")
    again = ParquetTracker()
    again.start(info(tmp_path, resumed_from=1))
    assert [p.name for p in (tmp_path / "rollouts").iterdir()] == ["step-00000001.parquet"]
    ParquetTracker().start(info(tmp_path))
    assert list((tmp_path / "rollouts").iterdir()) == []


def test_parquet_writes_every_nth_step_and_nothing_once_finished(tmp_path: Path) -> None:
    tracker = ParquetTracker(every=2)
    tracker.start(info(tmp_path))
    for step in (1, 2, 3, 4):
        tracker.log_rollouts(step, [make_group([1.0])])
    tracker.finish("finished")
    tracker.log_rollouts(6, [make_group([1.0])])
    names = sorted(p.name for p in (tmp_path / "rollouts").iterdir())
    assert names == ["step-00000002.parquet", "step-00000004.parquet"]
    with pytest.raises(ValueError, match="at least 1"):
        ParquetTracker(every=0)


def test_parquet_keeps_text_that_utf_8_cannot_hold(tmp_path: Path) -> None:
    tracker = ParquetTracker(tokens=False)
    tracker.start(info(tmp_path))
    tracker.log_rollouts(1, [make_group([1.0], responses=["a\ud800b"])])
    pattern = str(tmp_path / "rollouts" / "*.parquet")
    assert duckdb.sql(f"select response from '{pattern}'").fetchall() == [("a?b",)]


def test_console_outside_a_terminal_prints_one_line_a_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tracker = ConsoleTracker()
    tracker.start(info(tmp_path))
    tracker.log(0, {"eval/accuracy/math": 0.25})
    tracker.log(1, {"reward/score/math": 0.5, "time/step_s": 2.0, "time/rollout_s": 1.5})
    tracker.finish("finished")
    tracker.finish("finished")
    out = capsys.readouterr().out
    assert "step 0 held-out  math 0.250" in out
    assert "step 1/4  score math 0.50" in out
    assert "rollout 1.5s" in out
    assert out.count("finished") == 1


def test_console_shows_the_held_out_accuracy_of_a_step_beside_its_own_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tracker = ConsoleTracker()
    tracker.start(info(tmp_path, resumed_from=2))
    tracker.log(3, {"time/step_s": 2.0, "time/rollout_tokens_per_s": 812.4, "eval/accuracy/math": 0.75})
    lines = capsys.readouterr().out.splitlines()
    assert "going on from step 2" in lines[0]
    assert lines[1].startswith("step 3/4  score -  tokens -  2.0 s/step  - samples/s  812 tokens/s")
    assert lines[2] == "step 3 held-out  math 0.750"


def test_console_paints_on_a_terminal_and_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    before = set(threading.enumerate())
    tracker = ConsoleTracker()
    tracker.start(info(tmp_path))
    tracker.log(1, {"reward/score/math": 0.5, "time/step_s": 2.0, "time/samples_per_s": 4.0})
    tracker.finish("failed")
    tracker.log(2, {"reward/score/math": 0.5, "time/step_s": 2.0})
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
        assert not thread.is_alive()
    assert "1/4" in screen.getvalue()
    assert "4.0 samples/s" in screen.getvalue()
    assert "failed" in screen.getvalue()


def test_console_table_shows_every_domain(tmp_path: Path) -> None:
    tracker = ConsoleTracker()
    tracker.start(info(tmp_path))
    metrics = {"reward/score/a": 0.5, "reward/score/b": math.nan, "mixer/target/a": 0.75, "eval/accuracy/a": 0.125}
    tracker.log(1, metrics)
    console = Console(file=io.StringIO(), width=100)
    console.print(tracker._render())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.75" in text
    assert "0.125" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("a ", "b "))] == ["a", "b"]
    assert "b -" in step_line(metrics)
