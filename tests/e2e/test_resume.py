"""A resumed run is bit-equal to the run that was never stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_files import rows_of, tokens_of, weights_of

import roll_core as roll
from roll_core.errors import BackendError, CheckpointError, ConfigError, DataError, PluginError
from roll_core.evaluation import Evaluator
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.types import RolloutGroup

PPO = {"algorithm": {"advantage": "gae", "kl": {"coef": 0.01, "adaptive": {"target": 0.1, "horizon": 100}}}}
GRPO = {
    "filters": ["informative_groups"],
    "batch": {"prompts": 4, "group_size": 4, "max_prompt_tokens": 32, "mini_batches": 2},
}

LORA = {"lora": {"rank": 4, "alpha": 8, "dropout": 0.1}}


@pytest.mark.parametrize("variant", [GRPO, PPO, LORA], ids=["grpo", "ppo", "lora with dropout"])
def test_resume_is_bit_equal(
    base_config: dict[str, Any], tmp_path: Path, resume_run: Callable[..., Any], variant: dict[str, Any]
) -> None:
    if "lora" in variant:
        variant = {"model": base_config["model"] | variant}
    config = base_config | variant | {"steps": 6, "checkpoint": {"every": 2, "keep": 9}, "eval": {"every": 3}}
    straight = roll.train(**config).folder
    stopped = tmp_path / "stopped"
    roll.train(**config | {"folder": str(stopped)})
    resumed = resume_run(stopped, step=2)
    assert resumed.result.steps == 6
    assert rows_of(stopped) == rows_of(straight)
    assert tokens_of(stopped) == tokens_of(straight)
    assert weights_of(stopped) == weights_of(straight)
    assert resumed.summary["domains"] == json.loads((straight / "summary.json").read_text())["domains"]


def start(config: dict[str, Any], tmp_path: Path) -> subprocess.Popen[str]:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "roll_core.cli.main", "train", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, pattern: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not list(path.glob(pattern)):
        assert time.monotonic() < end, f"nothing like {pattern} in {path}"
        time.sleep(0.02)


def test_killed_run_resumes_bit_equal(
    base_config: dict[str, Any], tmp_path: Path, resume_run: Callable[..., Any]
) -> None:
    config = base_config | {"steps": 12, "checkpoint": {"every": 1, "keep": 3}, "eval": {"at_start": False}}
    straight = roll.train(**config).folder
    killed = tmp_path / "killed"
    with start(config | {"folder": str(killed)}, tmp_path) as run:
        wait_for(killed / "checkpoints", "step-00000003")
        run.kill()
    assert not (killed / "summary.json").exists()
    resume_run(killed)
    assert rows_of(killed) == rows_of(straight)
    assert weights_of(killed) == weights_of(straight)


def test_interrupt_finishes_the_step_saves_and_says_how_to_go_on(base_config: dict[str, Any], tmp_path: Path) -> None:
    config = base_config | {"steps": 10_000, "eval": {"at_start": False}}
    folder = Path(config["folder"])
    with start(config, tmp_path) as run:
        wait_for(folder / "rollouts", "step-00000003.parquet")
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert f"roll resume {folder}" in out
    saved = sorted((folder / "checkpoints").iterdir())
    assert len(saved) == 1
    assert int(saved[0].name.removeprefix("step-")) >= 3
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"


def test_python_run_resumes_with_its_objects_also_inside_an_event_loop(base_config: dict[str, Any]) -> None:
    def judge(response: str, reference: Any) -> float:
        return sum(c.isdigit() for c in response) / max(1, len(response))

    config = base_config | {"steps": 2, "eval": {"at_start": False, "at_end": False}}
    config["domains"] = {"letters": config["domains"]["letters"] | {"verifier": judge}}
    config["mixer"] = {"use": "ratio"}

    async def notebook() -> Any:
        roll.train(**config)
        return roll.train(**config | {"steps": 3}, resume=True)

    run = asyncio.run(notebook())
    assert [m["train/lr"] > 0 for m in run.result.metrics] == [True]
    assert [row["step"] for row in rows_of(run.folder)] == [1, 2, 3]


def test_resume_without_a_checkpoint_and_with_other_plugins_is_refused(base_config: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        roll.train(**base_config, resume=True)
    roll.train(**base_config | {"steps": 1, "eval": {"at_start": False, "at_end": False}})
    with pytest.raises(PluginError, match="rollfile"):
        roll.train(**base_config | {"domains": named_verifier(base_config), "plugins": {}}, resume=True)


def named_verifier(config: dict[str, Any]) -> dict[str, Any]:
    return {name: domain | {"verifier": "json_fields"} for name, domain in config["domains"].items()}


def test_resume_from_an_older_checkpoint_replaces_the_later_ones(
    base_config: dict[str, Any], resume_run: Callable[..., Any]
) -> None:
    config = base_config | {"steps": 5, "checkpoint": {"every": 2, "keep": 2}, "eval": {"at_start": False}}
    folder = roll.train(**config).folder
    first = weights_of(folder)
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step-00000004", "step-00000005"]
    resume_run(folder, 4, "train.optim.lr=0.5")
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step-00000004", "step-00000005"]
    assert weights_of(folder) != first
    assert [row["step"] for row in rows_of(folder)] == [1, 2, 3, 4, 5, 5]


def test_resuming_a_finished_run_changes_nothing_and_fewer_steps_are_refused(
    base_config: dict[str, Any], resume_run: Callable[..., Any]
) -> None:
    run = roll.train(**base_config)
    before = rows_of(run.folder)
    again = resume_run(run.folder)
    assert again.result.status == "finished"
    assert rows_of(run.folder) == before
    assert again.summary["domains"] == run.summary["domains"]
    with pytest.raises(ConfigError, match="the run ends at steps=2"):
        resume_run(run.folder, None, "steps=2")


def test_stop_during_the_first_evaluation_is_made_up_for(
    base_config: dict[str, Any], resume_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Evaluator.run

    async def stopping(self: Evaluator) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return await evaluate(self)

    config = base_config | {"eval": {"every": 2}}
    straight = roll.train(**config | {"folder": f"{base_config['folder']}-straight"})
    monkeypatch.setattr(Evaluator, "run", stopping)
    stopped = roll.train(**config)
    assert (stopped.result.status, stopped.result.steps) == ("interrupted", 0)
    monkeypatch.setattr(Evaluator, "run", evaluate)
    resume_run(stopped.folder)
    assert rows_of(stopped.folder) == rows_of(straight.folder)


def test_a_failure_in_a_step_saves_the_last_one(base_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    collect = RolloutScheduler.collect

    async def failing(self: RolloutScheduler, step: int, count: int) -> Any:
        if step == 3:
            raise BackendError("the engine died")
        return await collect(self, step, count)

    monkeypatch.setattr(RolloutScheduler, "collect", failing)
    with pytest.raises(BackendError, match="the engine died"):
        roll.train(**base_config)
    folder = Path(base_config["folder"])
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["step-00000003"]
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"
    monkeypatch.setattr(RolloutScheduler, "collect", collect)
    assert roll.train(**base_config, resume=True).result.steps == 4


def test_state_of_components_survives(base_config: dict[str, Any]) -> None:
    class Counting:
        """A filter that admits everything and counts."""

        def __init__(self) -> None:
            self.seen = 0

        def reject(self, group: RolloutGroup) -> str | None:
            self.seen += 1
            return None

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state: Any) -> None:
            self.seen = state["seen"]

    config = base_config | {"steps": 2, "eval": {"at_start": False, "at_end": False}}
    roll.train(**config, filters=[{"use": Counting()}])
    resumed = Counting()
    roll.train(**config | {"steps": 3}, filters=[{"use": resumed}], resume=True)
    assert resumed.seen == 12


def test_a_run_whose_data_end_finishes(base_config: dict[str, Any]) -> None:
    config = base_config | {"steps": 50}
    for domain in config["domains"].values():
        domain["data"] = domain["data"] | {"repeat": False}
    run = roll.train(**config)
    assert (run.result.status, run.result.steps) == ("finished", 2)
    assert set(run.summary["domains"]) == {"letters", "more"}


def test_overwrite_keeps_the_old_run_when_the_new_one_cannot_be_built(base_config: dict[str, Any]) -> None:
    config = base_config | {"steps": 1, "eval": {"at_start": False, "at_end": False}}
    folder = roll.train(**config).folder
    broken = config["domains"]["letters"] | {"eval_data": "no_such_file.jsonl"}
    with pytest.raises(DataError, match="no_such_file"):
        roll.train(**config | {"domains": {"letters": broken}, "mixer": {"use": "ratio"}}, overwrite=True)
    assert (folder / "checkpoints" / "step-00000001").is_dir()
    assert roll.train(**config, overwrite=True).result.steps == 1
