"""Whatever never answers, the engine goes on, goes back to a checkpoint, or stops and says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import roll_core as roll
from roll_core.cluster import Stuck
from roll_core.testing.fakes import FakeBackend
from roll_core.testing.tiny import make_tiny_model
from roll_core.types import Completion, GenerateRequest
from roll_core.watch import read_status

LIMIT_S = 2.0
"""Of a stage. One that is late on a busy machine goes on from the last checkpoint, and the run ends the same."""
SLEEPERS = """
import asyncio, time
from roll_core import verifier

@verifier
def sleeps(response, reference):
    \"\"\"Never answers to an even number of characters.\"\"\"
    while len(response) % 2 == 0:
        time.sleep(1)
    return float(len(response) % 3 == 0)

@verifier
async def sleeps_on(response, reference):
    \"\"\"The same, and does not let itself be cancelled at first.\"\"\"
    for _ in range(10 if len(response) % 2 == 0 else 0):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
    return float(len(response) % 3 == 0)
"""


class Silent(FakeBackend):
    """Does not answer when `is_silent` says so for the number of a request; releases nobody either."""

    def __init__(self, is_silent: Callable[[int], bool]) -> None:
        super().__init__([[5, 6, 7], [8], [9, 10], [11]])
        self._is_silent = is_silent

    async def generate(self, request: GenerateRequest) -> Completion:
        if self._is_silent(len(self.requests)):
            self.requests.append(request)
            await asyncio.get_running_loop().create_future()
        return await super().generate(request)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0)


@pytest.fixture
def config(tiny_model: Path, tmp_path: Path) -> dict[str, Any]:
    rows = [{"prompt": letter, "reference": "1"} for letter in "abcd"]
    return {
        "folder": str(tmp_path / "run"),
        "seed": 1,
        "steps": 3,
        "model": {"path": str(tiny_model)},
        "domains": {"letters": {"data": {"use": "rows", "rows": rows}, "verifier": score}},
        "batch": {"prompts": 2, "group_size": 2, "max_prompt_tokens": 32},
        "rollout": {"sampling": {"max_new_tokens": 6}},
        "train": {"strategy": {"use": "local", "precision": "float32"}},
        "scoring": {"workers": 0},
        "trackers": ["jsonl"],
        "checkpoint": {"every": 1},
        "faults": {"stage_timeout_s": LIMIT_S, "restarts": 0},
    }


def score(response: str, reference: Any) -> float:
    return float(len(response) % 2)


def with_backend(config: dict[str, Any], backend: FakeBackend, **rollout: Any) -> dict[str, Any]:
    return config | {"rollout": config["rollout"] | {"backend": backend} | rollout}


def steps_of(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_backend_that_is_silent_once_costs_a_restart_and_nothing_else(config: dict[str, Any], tmp_path: Path) -> None:
    backend = Silent(lambda number: number in (5, 6))
    run = roll.train(**with_backend(config, backend) | {"faults": config["faults"] | {"restarts": 3, "wait_s": 0.0}})
    assert run.result.steps == 3
    assert steps_of(run.folder) == [1, 2, 3]
    status = read_status(run.folder)
    assert (status.state, status.step, status.saved_step) == ("finished", 3, 3)
    assert status.restarts >= 1
    reports = "\n".join(path.read_text() for path in (run.folder / "hangs").iterdir())
    assert "stage 'rollout'" in reports
    assert "2 requests" in reports
    assert "create_future" in reports, "the tasks that wait are shown with the line they wait in"


@pytest.mark.parametrize(
    ("mode", "first_silent", "stage"),
    [("sync", 4, "rollout"), ("one_step", 4, "settle"), ("async", 4, "freezing for the checkpoint")],
)
def test_a_backend_that_never_answers_stops_the_run_with_who_waits_for_whom(
    config: dict[str, Any], mode: str, first_silent: int, stage: str
) -> None:
    backend = Silent(lambda number: number >= first_silent)
    with pytest.raises(Stuck, match=f"stage '{stage}' of step ") as stuck:
        roll.train(**with_backend(config, backend, mode=mode))
    folder = Path(config["folder"])
    assert f"engine waits for {stage}" in str(stuck.value)
    assert "full report: " in str(stuck.value)
    assert read_status(folder).state == "failed"
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"


def test_an_evaluation_that_never_ends_is_bounded_too(config: dict[str, Any]) -> None:
    domain = config["domains"]["letters"]
    config["domains"] = {"letters": domain | {"eval_data": domain["data"]}}
    with pytest.raises(Stuck, match="stage 'evaluation' of step "):
        roll.train(**with_backend(config, Silent(lambda number: True)))


@pytest.mark.parametrize("verifier", ["sleeps", "sleeps_on"])
def test_a_verifier_that_never_answers_stops_no_step(config: dict[str, Any], tmp_path: Path, verifier: str) -> None:
    rollfile = tmp_path / "sleepers.py"
    rollfile.write_text(SLEEPERS)
    config["domains"] = {"letters": config["domains"]["letters"] | {"verifier": verifier}}
    config |= {
        "steps": 1,
        "scoring": {"workers": 2, "timeout_s": 0.3},
        "plugins": {"rollfile": str(rollfile)},
        "faults": {"stage_timeout_s": 300.0, "restarts": 0},
    }
    run = roll.train(**with_backend(config, Silent(lambda number: False)))
    (metrics,) = run.result.metrics
    silent = metrics["scoring/status/error/letters"]
    assert 0 < silent < 4
    assert metrics["scoring/unscored_rate"] == silent / 4
    assert not (run.folder / "hangs").exists()
