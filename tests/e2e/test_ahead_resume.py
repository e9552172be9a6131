"""An asynchronous run that is killed at any moment goes on with its journals: nothing lost, nothing trained twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep
import pyarrow.parquet as pq
import pytest
import yaml
from run_files import rows_of, tokens_of, weights_of

import roll_core as roll
from roll_core.api import TrainedRun
from roll_core.checkpoint import CheckpointStore
from roll_core.rollout.journal import Pending, read_pending
from roll_core.types import Prompt, Ticket

STEPS = 8
MOMENTS = {"rollout": 4, "update": 4, "weights": 2, "name": 2}
"""When the run is killed, and the checkpoint that is left."""


def ahead(base: dict[str, Any], folder: Path, mode: str = "async") -> dict[str, Any]:
    staleness = {"max_staleness": lockstep.STALENESS} if mode == "async" else {}
    rollout = base["rollout"] | {"mode": mode} | staleness
    return base | {
        "folder": str(folder),
        "steps": STEPS,
        "rollout": rollout,
        "checkpoint": {"every": 2, "keep": 9},
        "eval": {"at_start": False, "at_end": False},
    }


@pytest.fixture(scope="module")
def straight_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("straight") / "run"


@pytest.fixture
def straight(base_config: dict[str, Any], straight_folder: Path) -> Path:
    """A run that nobody killed."""
    if not straight_folder.exists():
        lockstep.run(ahead(base_config, straight_folder))
    return straight_folder


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed") / "runs"


@pytest.fixture
def killed(base_config: dict[str, Any], killed_folder: Path, tmp_path: Path) -> Path:
    """Runs that were killed, one folder a moment."""
    if not killed_folder.exists():
        file = tmp_path / "config.json"
        file.write_text(json.dumps(ahead(base_config, killed_folder)))
        command = [sys.executable, lockstep.__file__, str(file), *MOMENTS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
    return killed_folder


def trace_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((folder / "trace").iterdir())]


def pending_of(folder: Path) -> Pending:
    def prompt_of(ticket: Ticket) -> Prompt:
        return Prompt(ticket.prompt_id, ticket.domain, text="")

    return read_pending(folder, prompt_of)


def assert_books_close(folder: Path, rows: list[list[int]]) -> None:
    """Every ticket that was drawn is trained in exactly one step."""
    state = CheckpointStore(folder / "checkpoints").latest().read_state()  # type: ignore[union-attr]
    totals = state["ledger"]["totals"].values()
    assert sum(t["drawn"] for t in totals) == sum(t["trained"] for t in totals) == STEPS * lockstep.PROMPTS
    assert state["ledger"]["open"] == []
    assert all(len(set(step)) == lockstep.PROMPTS for step in rows)
    assert sorted(t for step in rows for t in set(step)) == list(range(STEPS * lockstep.PROMPTS))


def tickets_of(folder: Path) -> list[list[int]]:
    files = sorted((folder / "rollouts").glob("*.parquet"))
    return [pq.read_table(file, columns=["ticket"])["ticket"].to_pylist() for file in files]


def test_the_undisturbed_run_is_one_worth_comparing_with(straight: Path) -> None:
    rows = rows_of(straight)
    assert [row["rollout/groups_admitted"] for row in rows] == [lockstep.PROMPTS] * STEPS
    assert max(row["rollout/staleness_max"] for row in rows) == lockstep.STALENESS
    assert_books_close(straight, tickets_of(straight))
    pending = pending_of(straight / "checkpoints" / "step-00000004" / "pending")
    assert pending.under_way and pending.collected.admitted
    assert {c.finish_reason for c in pending.made.values()} == {"abort", "stop"}
    mixed = [versions for step in trace_of(straight) for _, versions in step.values() if len(set(versions)) > 1]
    assert len(mixed) > STEPS * lockstep.PROMPTS


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_killed_ends_like_one_that_was_not(
    base_config: dict[str, Any], straight: Path, killed: Path, moment: str
) -> None:
    folder = killed / moment
    checkpoint = CheckpointStore(folder / "checkpoints").latest()
    assert checkpoint is not None and checkpoint.step == MOMENTS[moment]
    assert checkpoint.pending_folder is not None
    pending = pending_of(checkpoint.pending_folder)
    lockstep.run(ahead(base_config, folder), resume=True)
    trace = trace_of(folder)
    final = {name: row for step in trace for name, row in step.items()}
    kept = [(key.rpartition("/")[0], completion) for key, completion in pending.made.items()]
    assert any(len(completion.token_ids) for _, completion in kept)
    for name, completion in kept:
        tokens, versions = final[name]
        made = len(completion.token_ids)
        assert tokens[:made] == completion.token_ids.tolist()
        assert versions[:made] == [r.policy.version for r in completion.versions for _ in range(r.start, r.stop)]
    assert_books_close(folder, tickets_of(folder))
    assert not list((folder / "checkpoints").glob(".*"))
    assert trace == trace_of(straight)
    assert rows_of(folder) == rows_of(straight)
    assert weights_of(folder) == weights_of(straight)


# --- with the real backend, killed whenever it happens ---


def wait_for(path: Path, pattern: str, run: subprocess.Popen[str], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not list(path.glob(pattern)):
        assert run.poll() is None, "the run has ended"
        assert time.monotonic() < end, f"nothing like {pattern} in {path}"
        time.sleep(0.005)


@pytest.mark.parametrize("mode", ["async", "one_step"])
def test_a_real_run_that_is_killed_loses_no_prompt(
    base_config: dict[str, Any], tmp_path: Path, resume_run: Callable[..., TrainedRun], mode: str
) -> None:
    config = ahead(base_config, folder := tmp_path / "killed", mode)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "roll_core.cli.main", "train", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True) as run:
        wait_for(folder / "checkpoints", "step-00000002", run)
        run.kill()
    assert not (folder / "summary.json").exists()
    assert resume_run(folder).result.steps == STEPS
    assert_books_close(folder, tickets_of(folder))
    if mode == "one_step":
        straight = roll.train(**config | {"folder": str(tmp_path / "straight")}).folder
        assert rows_of(folder) == rows_of(straight)
        assert tokens_of(folder) == tokens_of(straight)
        assert weights_of(folder) == weights_of(straight)
