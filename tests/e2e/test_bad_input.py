"""Each wrong input gives one clear error and a non-zero exit before anything is lost, or is survived and counted."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import roll_core as roll
from roll_core.errors import CheckpointError, ConfigError, DataError, StarvationError

ROLLFILE = """
import math, os, time
from roll_core import reward, verifier

@verifier
def raises(response, reference):
    raise RuntimeError("planted")

@verifier
def hangs_on_some(response, reference):
    if len(response) % 2:
        time.sleep(60)
    return 0.5

@verifier
def nan(response, reference):
    return math.nan

@verifier
def dies_on_some(response, reference):
    if len(response) % 2:
        os._exit(3)
    return 0.5

@verifier
def always_right(response, reference):
    return True
"""


@pytest.fixture
def rollfile(tmp_path: Path) -> str:
    path = tmp_path / "faulty.py"
    path.write_text(ROLLFILE)
    return str(path)


def with_domain(config: dict[str, Any], **change: Any) -> dict[str, Any]:
    domain = config["domains"]["letters"] | change
    return config | {"domains": {"letters": domain}, "mixer": {"use": "ratio"}}


def with_verifier(config: dict[str, Any], rollfile: str, name: str) -> dict[str, Any]:
    scoring = {"workers": 1, "timeout_s": 0.3}
    return with_domain(config, verifier=name) | {"plugins": {"rollfile": rollfile}, "scoring": scoring, "steps": 1}


def test_missing_data_file(base_config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no_such"):
        roll.train(**with_domain(base_config, data=str(tmp_path / "no_such.jsonl")))


def test_malformed_data_file_names_file_and_line(base_config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "reference": "b"}\n{"prompt": \n')
    with pytest.raises(DataError, match=r"bad\.jsonl.*2"):
        roll.train(**with_domain(base_config, data=str(path)))


def test_empty_domain(base_config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(DataError, match="no rows"):
        roll.train(**with_domain(base_config, data=str(path)))


def test_prompts_longer_than_the_model_allows(base_config: dict[str, Any]) -> None:
    rows = [{"prompt": "x" * 600, "reference": ""}]
    config = with_domain(base_config, data={"use": "rows", "rows": rows}, eval_data=None)
    with pytest.raises(DataError, match="letters"):
        roll.train(**config | {"batch": {"prompts": 2, "group_size": 2, "max_prompt_tokens": 2000}})


def test_weights_that_sum_to_zero(base_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="mixer"):
        roll.train(**base_config | {"mixer": {"use": "ratio", "weights": {"letters": 0, "more": 0}}})


def test_unknown_component_offers_a_near_match(base_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        roll.train(**with_domain(base_config, verifier="digit"))


def test_unknown_key_offers_a_near_match(base_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="group_size"):
        roll.train(**base_config | {"batch": {"prompts": 4, "groupsize": 4}})


@pytest.mark.parametrize("name", ["raises", "nan"])
def test_a_verifier_that_always_fails_is_machinery_not_wrong_answers(
    base_config: dict[str, Any], rollfile: str, name: str
) -> None:
    with pytest.raises(StarvationError, match=r"unscored.*no scored rollout"):
        roll.train(**with_verifier(base_config, rollfile, name) | {"eval": {"at_start": False}})


@pytest.mark.parametrize("name", ["hangs_on_some", "dies_on_some"])
def test_hangs_and_crashes_are_survived_and_counted(base_config: dict[str, Any], rollfile: str, name: str) -> None:
    config = with_verifier(base_config, rollfile, name)
    config |= {"batch": {"prompts": 2, "group_size": 4, "max_prompt_tokens": 32}}
    run = roll.train(**config | {"eval": {"at_start": False, "at_end": False}})
    metrics = run.result.metrics[0]
    assert metrics["scoring/status/error/letters"] > 0
    assert metrics["reward/score/letters"] == 0.5
    assert metrics["scoring/workers_replaced"] > 0


def test_a_task_that_is_too_easy_ends_clearly_and_keeps_the_last_step(
    base_config: dict[str, Any], rollfile: str
) -> None:
    config = with_verifier(base_config, rollfile, "always_right")
    with pytest.raises(StarvationError, match=r"domain 'letters' is too easy \(pass rate 1\.00\)"):
        roll.train(**config | {"filters": ["informative_groups"], "steps": 3})


def test_full_disk_at_checkpoint_time_keeps_the_previous_checkpoint(
    base_config: dict[str, Any], tmp_path: Path
) -> None:
    roll.train(**base_config | {"steps": 1})
    folder = Path(base_config["folder"])
    code = f"""
import resource, sys
from roll_core.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
main(["resume", {str(folder)!r}, "steps=2"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "cannot write checkpoint" in done.stderr
    assert "step-00000001 is still good" in done.stderr
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["step-00000001"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 40_000


def test_command_line_says_it_in_one_message(base_config: dict[str, Any], tmp_path: Path) -> None:
    config = with_domain(base_config, verifier="digit")
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "roll_core.cli.main", "train", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "domains.letters.verifier" in done.stderr
    assert "config.yaml" in done.stderr
    assert not Path(base_config["folder"]).exists()


def test_an_existing_run_is_not_overwritten(base_config: dict[str, Any]) -> None:
    roll.train(**base_config | {"steps": 1, "eval": {"at_start": False, "at_end": False}})
    with pytest.raises(ConfigError, match="already holds a run"):
        roll.train(**base_config)


def test_truncated_checkpoint_is_refused(base_config: dict[str, Any], resume_run: Callable[..., Any]) -> None:
    folder = roll.train(**base_config | {"steps": 1, "eval": {"at_start": False, "at_end": False}}).folder
    victim = max((folder / "checkpoints").rglob("*.safetensors"), key=lambda f: f.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=victim.name):
        resume_run(folder)
    assert json.loads((folder / "summary.json").read_text())["steps"] == 1
