"""A run that loses what it cannot replace goes on by itself, and comes to what it would have come to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_files import rows_of, tokens_of, weights_of

import roll_core as roll
from roll_core.cluster import WorkerLost
from roll_core.errors import ConfigError
from roll_core.files import held


@pytest.fixture
def lossy(base_config: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Eight steps with a checkpoint every other one; `losses.txt` says which updates are lost."""
    losses = tmp_path / "losses.txt"
    losses.write_text("")
    return base_config | {
        "steps": 8,
        "checkpoint": {"every": 2, "keep": 9},
        "eval": {"every": 4},
        "faults": {"wait_s": 0},
        "train": base_config["train"] | {"strategy": {"use": "lossy", "losses": str(losses)}},
        "plugins": {"rollfile": str(Path(__file__).parent / "losses.py")},
    }


def same_run(one: Path, other: Path) -> None:
    assert rows_of(one) == rows_of(other)
    assert tokens_of(one) == tokens_of(other)
    assert weights_of(one) == weights_of(other)


def test_lost_ranks_change_nothing_of_the_result(
    lossy: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    straight = roll.train(**lossy).folder
    (tmp_path / "losses.count").unlink()
    (tmp_path / "losses.txt").write_text("1 4 5 9")  # before the first checkpoint; twice at one step; later
    run = roll.train(**lossy | {"folder": str(tmp_path / "lossy")})
    assert run.result.status == "finished"
    assert run.result.steps == 8
    assert caplog.text.count("going on from") == 4
    assert "the beginning, for want of a checkpoint" in caplog.text
    same_run(run.folder, straight)


def test_a_loss_that_comes_back_ends_the_run(lossy: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "losses.txt").write_text(" ".join(map(str, range(3, 99))))
    with pytest.raises(WorkerLost, match="in update 5") as caught:
        roll.train(**lossy | {"faults": {"restarts": 2, "wait_s": 0}})
    assert caught.value.__notes__ == ["gave up after 2 restarts in a row (faults.restarts)"]
    (tmp_path / "losses.txt").write_text("")
    assert roll.train(**lossy, resume=True).result.steps == 8


def test_errors_of_the_program_are_not_tried_again(lossy: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "losses.txt").write_text("no number")
    with pytest.raises(ValueError, match="invalid literal"):
        roll.train(**lossy)
    assert (tmp_path / "losses.count").read_text() == "1"


def command(config: dict[str, Any], tmp_path: Path) -> list[str]:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    return [sys.executable, "-m", "roll_core.cli.main", "train", str(file)]


def test_a_killed_driver_is_resumed_by_the_process_that_watches_over_it(lossy: dict[str, Any], tmp_path: Path) -> None:
    straight = roll.train(**lossy).folder
    (tmp_path / "losses.count").unlink()
    (tmp_path / "losses.txt").write_text("1 6")
    strategy = lossy["train"]["strategy"] | {"how": "driver"}
    killed = lossy | {
        "folder": str(tmp_path / "killed"),
        "train": lossy["train"] | {"strategy": strategy},
        "faults": {"wait_s": 0, "supervise": True},
    }
    run = subprocess.run(command(killed, tmp_path), check=False, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("the driver was killed by SIGKILL; going on from") == 2
    assert "8 steps" in run.stdout
    same_run(tmp_path / "killed", straight)


def test_the_watching_process_passes_an_interrupt_on_and_ends_with_the_drivers_code(
    base_config: dict[str, Any], tmp_path: Path
) -> None:
    config = base_config | {"steps": 10_000, "eval": {"at_start": False}, "faults": {"supervise": True}}
    with subprocess.Popen(
        command(config, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        metrics = Path(config["folder"]) / "metrics.jsonl"
        while watcher.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            with pytest.raises(subprocess.TimeoutExpired):
                watcher.wait(0.1)
        os.kill(watcher.pid, signal.SIGINT)
        out, err = watcher.communicate(timeout=120)
    assert watcher.returncode == 130, err
    assert "roll resume" in out


def test_a_driver_whose_heart_has_stopped_is_ended_and_resumed(base_config: dict[str, Any], tmp_path: Path) -> None:
    """SIGSTOP stands for a thread that never gives the interpreter back."""
    folder = Path(base_config["folder"])
    config = base_config | {"steps": 20, "eval": {"at_start": False}, "checkpoint": {"every": 1}}
    config["faults"] = {"supervise": True, "stage_timeout_s": 10.0, "wait_s": 0}
    with subprocess.Popen(
        command(config, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        while watcher.poll() is None and not list(folder.glob("checkpoints/step-*")):
            with pytest.raises(subprocess.TimeoutExpired):
                watcher.wait(0.1)
        os.kill(json.loads((folder / "status.json").read_text())["pid"], signal.SIGSTOP)
        out, err = watcher.communicate(timeout=240)
    assert watcher.returncode == 0, err
    assert "the driver stood still; going on from checkpoint" in err
    assert "20 steps" in out


def test_a_run_that_is_going_on_keeps_others_out(base_config: dict[str, Any]) -> None:
    folder = Path(base_config["folder"])
    folder.mkdir()
    with held(folder / "run.lock"), pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
        roll.train(**base_config)
    assert roll.train(**base_config | {"steps": 1}).result.steps == 1


def test_a_run_that_cannot_be_built_leaves_no_folder(base_config: dict[str, Any]) -> None:
    with pytest.raises(roll.RollError):
        roll.train(**base_config | {"train": {"strategy": {"use": "local", "device": "cuda:77"}}})
    assert not Path(base_config["folder"]).exists()
