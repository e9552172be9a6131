"""`roll status` and `roll scale`: what is shown, and what is advised."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from roll_core.cli.main import cli
from roll_core.cli.status import render
from roll_core.watch import RunStatus, take_request
from roll_core.watch.liveness import birth_of


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "none")
    monkeypatch.setenv("COLUMNS", "160")


def write(folder: Path, **fields: Any) -> RunStatus:
    now = time.time()
    worker = {"node": "node7", "rss_bytes": 3 * 2**30, "is_alive": True, "queued": 0, "busy_s": None, "busy_with": ""}
    at_work = {"busy_s": 65.0, "busy_with": "'generate'", "queued": 8}
    wait = {"who": "driver", "whom": "rollout[1]", "what": "[b]'generate'"}
    known: dict[str, Any] = {
        "state": "running", "pid": os.getpid(), "born": birth_of(os.getpid()), "host": socket.gethostname(),
        "started": now - 7200, "heartbeat": now, "stage": "rollout", "stage_step": 12, "stage_since": now - 100.1,
        "stage_limit_s": 3600.0, "loop_lag_s": 0.0, "rss_bytes": 2**30, "run_id": "abc", "name": "digits",
        "mode": "async", "step": 12, "total_steps": 90, "policy_version": 12, "staleness_mean": 0.25,
        "staleness_max": 2.0, "tokens_per_s": 1234.5, "saved_step": 10, "queue": {"open": 3, "requests": 24},
        "workers": [
            {"role": "actor", "index": 0, "pid": 11, "devices": ["0", "1"], **worker},
            {"role": "rollout", "index": 1, "pid": 12, **worker, **at_work},
            {"role": "rollout", "index": 2, "pid": 13, **worker, "is_alive": False},
        ],
        "waits": [{**wait, "limit_s": 600.0, "since": now - 65}],
    }  # fmt: skip
    status = RunStatus(**known | fields)
    folder.mkdir(exist_ok=True)
    status.write(folder)
    return status


def roll(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def shown(folder: Path) -> str:
    result = roll("status", str(folder))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_living_run_is_shown_whole(tmp_path: Path) -> None:
    write(tmp_path)
    text = shown(tmp_path)
    for part in (
        "digits (abc) is alive", "12 of 90, async", "rollout of step 12 for 100 s", "bound 60 min",
        "3 open, 24 requests", "version 12, the last step's tokens 0.25 behind on average, 2 at most",
        "1,234 sampled tokens/s", "checkpoint  step 10", "up for 2 h 0 min, 1.00 GiB",
        "actor[0]", "0, 1", "idle: waits for the driver", "3.00 GiB", "'generate' for 65 s, 8 unanswered",
        "lost", "[b]'generate'", "65 s", "10 min",
    ):  # fmt: skip
        assert part in text, part
    assert "resume" not in text


def test_json_holds_everything(tmp_path: Path) -> None:
    write(tmp_path)
    found = json.loads(roll("status", str(tmp_path), "--json").output)
    assert found["liveness"] == "alive"
    assert found["age_s"] < 60
    assert [worker["role"] for worker in found["workers"]] == ["actor", "rollout", "rollout"]


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"pid": 2**30}, ["is dead", "ended without a word", "from step 10 with: roll resume RUN"]),
        ({"pid": 2**30, "saved_step": None}, ["is dead", "no checkpoint: start it again with `roll train CONFIG --"]),
        (
            {"heartbeat": 0.0},
            ["is silent", f"kill -CONT {os.getpid()}", f"kill -KILL {os.getpid()}; then: roll resume"],
        ),
        ({"heartbeat": 0.0, "host": "far"}, ["is unreachable", "on far; if it is gone, go on with: roll resume RUN"]),
        ({"state": "interrupted"}, ["is interrupted", "go on from step 10 with: roll resume RUN"]),
        ({"state": "failed", "error": "Stuck: \x1b[31mno"}, ["is failed", "Stuck: ␛[31mno", "roll resume RUN"]),
        (
            {"state": "hung", "hang": "hangs/1.txt"},
            ["is hung", "last hang:", "stage 'update' hangs", "roll resume RUN"],
        ),
        ({"state": "hung", "hang": "hangs/2.txt"}, ["last hang:", "2.txt (No such file or directory)"]),
    ],
)
def test_a_run_that_does_not_live_says_what_to_type(tmp_path: Path, fields: dict[str, Any], parts: list[str]) -> None:
    (tmp_path / "hangs").mkdir()
    (tmp_path / "hangs" / "1.txt").write_text("stage 'update' hangs\n" + "more\n" * 100)
    write(tmp_path, **fields)
    text = " ".join(shown(tmp_path).replace(str(tmp_path), "RUN").split())
    for part in parts:
        assert part in text, part
    assert text.count("more") < 20


def test_a_finished_run_needs_nothing(tmp_path: Path) -> None:
    write(tmp_path, state="finished", workers=[], waits=[])
    text = shown(tmp_path)
    assert "is finished" in text
    assert "resume" not in text
    assert "worker" not in text


def test_a_run_before_its_first_step_is_shown(tmp_path: Path) -> None:
    unknown = {"policy_version": None, "tokens_per_s": None, "saved_step": None, "run_id": "", "mode": "", "name": ""}
    status = write(tmp_path, **unknown, workers=[], waits=[], queue={}, stage_step=0, rss_bytes=None)
    console = Console(width=160, record=True)
    console.print(render(tmp_path, status))
    assert "none yet" in console.export_text()


def test_following_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        write(tmp_path, state="finished")

    monkeypatch.setattr("roll_core.cli.status.time.sleep", nap)
    result = roll("status", str(tmp_path), "--watch")
    assert result.exit_code == 0, result.output
    assert len(naps) == 1
    assert "is finished" in result.output


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    assert "no status.json" in roll("status", str(tmp_path)).output
    assert roll("status", str(tmp_path), "--watch", "--json").exit_code == 2


def test_status_loads_nothing_heavy(tmp_path: Path) -> None:
    write(tmp_path)
    code = (
        f"import sys\nsys.argv = ['roll', 'status', {str(tmp_path)!r}]\nfrom roll_core.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'ray', 'transformers', 'vllm', 'datasets', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


# --- roll scale ---


def test_scaling_leaves_a_wish_that_the_run_takes_up(tmp_path: Path) -> None:
    write(tmp_path, can_scale=True)
    result = roll("scale", str(tmp_path), "--replicas", "4")
    assert result.exit_code == 0, result.output
    assert "asked for 4 replicas" in result.output
    request = take_request(tmp_path)
    assert request is not None
    assert request.replicas == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"pid": 2**30, "can_scale": True}, "is dead"), ({}, "has a fixed number of replicas")],
)
def test_scaling_what_cannot_scale_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    write(tmp_path, **fields)
    result = roll("scale", str(tmp_path), "--replicas", "4")
    assert result.exit_code == 1
    assert message in result.output
    assert take_request(tmp_path) is None


def test_no_replicas_is_wrong_use(tmp_path: Path) -> None:
    assert roll("scale", str(tmp_path), "--replicas", "0").exit_code == 2
