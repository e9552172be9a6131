"""Reading `status.json`, judging whether its writer lives, and asking a run to scale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from roll_core.errors import ConfigError, DataError
from roll_core.watch import Liveness, RunStatus, ScaleRequest, ask_scale, assess, read_status, take_request
from roll_core.watch.liveness import FRESH_S, birth_of

HERE = "this-host"


def make(**fields: object) -> RunStatus:
    now = time.time()
    process = {"state": "running", "pid": os.getpid(), "born": birth_of(os.getpid()), "host": HERE, "rss_bytes": None}
    times = {"started": now, "heartbeat": now, "stage_since": now, "stage_limit_s": 60.0, "loop_lag_s": 0.0}
    return RunStatus(**{"stage": "rollout", "stage_step": 1} | process | times | fields)


def judged(status: RunStatus) -> Liveness:
    return assess(status, host=HERE)


OLD = {"heartbeat": time.time() - FRESH_S - 1}


def test_a_run_lives_while_its_process_is_there_and_writes() -> None:
    assert judged(make()) is Liveness.ALIVE
    assert judged(make(**OLD)) is Liveness.SILENT


def test_a_process_id_that_is_used_again_is_no_sign_of_life() -> None:
    assert judged(make(born="another boot/1")) is Liveness.DEAD


def test_a_process_that_has_ended_is_dead_although_it_wrote_just_now() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    assert judged(make(pid=ended.pid)) is Liveness.DEAD


def test_of_another_machine_only_the_heartbeat_is_seen() -> None:
    assert judged(make(host="far")) is Liveness.ALIVE
    assert judged(make(host="far", **OLD)) is Liveness.UNREACHABLE


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed", "hung"])
def test_a_run_that_said_how_it_ended_is_believed(state: str) -> None:
    found = judged(make(state=state, pid=1, **OLD))
    assert found == state
    assert found.can_resume == (state != "finished")


def test_a_status_comes_back_as_it_was_written(tmp_path: Path) -> None:
    status = make(queue={"open": 3}, saved_step=4)
    status.write(tmp_path)
    assert read_status(tmp_path) == status
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no status.json in .*has not begun to train"),
        ("{", "cannot read"),
        ("[]", "another version"),
        ('{"version": 99}', "another version"),
        ('{"version": 1}', "incomplete"),
    ],
)
def test_a_status_that_cannot_be_read_says_why(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "status.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_status(tmp_path)


def test_a_field_that_is_not_known_yet_is_passed_over(tmp_path: Path) -> None:
    status = make()
    (tmp_path / "status.json").write_text(json.dumps(asdict(status) | {"new": 1}))
    assert read_status(tmp_path) == status


# --- scaling ---


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> RunStatus:
    monkeypatch.setattr("socket.gethostname", lambda: HERE)
    return make(can_scale=True)


def test_a_wish_is_taken_up_once_and_the_newest_counts(tmp_path: Path, alive: RunStatus) -> None:
    assert take_request(tmp_path) is None
    ask_scale(tmp_path, alive, 2)
    asked = ask_scale(tmp_path, alive, 4)
    assert take_request(tmp_path) == asked == ScaleRequest(4, asked.asked)
    assert take_request(tmp_path) is None


def test_a_run_that_would_not_take_it_up_is_not_asked(tmp_path: Path, alive: RunStatus) -> None:
    with pytest.raises(ConfigError, match="is finished, so nobody would take this up"):
        ask_scale(tmp_path, make(state="finished", can_scale=True), 2)
    with pytest.raises(ConfigError, match="has a fixed number of replicas"):
        ask_scale(tmp_path, make(), 2)
    with pytest.raises(ConfigError, match="at least one rollout replica, got 0"):
        ask_scale(tmp_path, alive, 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", '{"replicas": "two", "asked": 1.0}', '{"replicas": 2}', "null"])
def test_a_wish_that_makes_no_sense_is_logged_and_gone(
    tmp_path: Path, alive: RunStatus, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    ask_scale(tmp_path, alive, 2)
    (tmp_path / "control" / "scale.json").write_text(text)
    assert take_request(tmp_path) is None
    assert "cannot be taken up" in caplog.text
    assert not list((tmp_path / "control").iterdir())
