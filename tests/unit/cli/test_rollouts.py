"""`roll rollouts`: what is chosen, what is shown, what is written as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roll_core.builtin.trackers.parquet import ParquetTracker
from roll_core.cli.main import cli
from roll_core.cli.rollouts import visible
from roll_core.contracts import RunInfo
from roll_core.testing.fakes import make_group
from roll_core.types import RolloutGroup


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "none")


def with_prompt(group: RolloutGroup, text: str) -> RolloutGroup:
    prompt = replace(group.prompt, messages=({"role": "user", "content": text},))
    group.prompt = prompt
    for rollout in group.rollouts:
        rollout.prompt = prompt
    return group


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps of two domains."""
    tracker = ParquetTracker()
    tracker.start(RunInfo("id", "test", tmp_path, {}, {}))
    tracker.log_rollouts(1, [make_group([0.0], domain="math", ticket=1)])
    math = make_group(
        [1.0, 0.5, None],
        domain="math",
        ticket=2,
        responses=["a [bold]b[/bold]", "\x1b[31mred", "z" * 3000],
        rewards=[1.5, 0.5, 0.0],
    )
    tracker.log_rollouts(2, [with_prompt(math, "q" * 1000), make_group([0.0], domain="json", ticket=3)])
    return tmp_path


def call(run: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["rollouts", str(run), *options])


def rows(run: Path, *options: str) -> list[dict[str, object]]:
    result = call(run, "--json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_the_last_step_is_shown_prompts_once_and_answers_below(run: Path) -> None:
    out = call(run).output
    assert [line.split(" ─")[0] for line in out.splitlines() if "─" in line] == [
        "step 2 · json · p3",
        "step 2 · math · p2",
    ]
    assert "#0 correct · score 1.00 · reward 1.500 = 1 x 1.5 fake · 4 tokens, stop\n  a [bold]b[/bold]\n" in out
    assert "#1 incorrect · score 0.50" in out
    assert "#2 error · 6 tokens, stop · fake · fake failure" in out
    assert "4 of 4 shown · 2 incorrect, 1 correct, 1 error · mean score 0.500" in out


def test_long_texts_are_shortened_unless_full(run: Path) -> None:
    short, full = call(run).output, call(run, "--full").output
    assert "more characters" in short
    assert short.count("z") < 1300
    assert full.count("z") == 3000
    assert full.count("q") == 1000


def test_what_a_policy_writes_does_not_steer_the_terminal(run: Path) -> None:
    out = call(run).output
    assert "\x1b" not in out
    assert "␛[31mred" in out
    assert visible("a\tb\nc\r\x7f") == "a\tb\nc␍␡"


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        (["--step", "1"], [("math", 0)]),
        (["--domain", "math"], [("math", 0), ("math", 1), ("math", 2)]),
        (["--status", "incorrect"], [("json", 0), ("math", 1)]),
        (["--prompt", "p3"], [("json", 0)]),
        (["--contains", "red"], [("math", 1)]),
        (["--min-score", "0.5"], [("math", 0), ("math", 1)]),
        (["--max-score", "0.5", "--domain", "math"], [("math", 1)]),
        (["-n", "1"], [("json", 0)]),
        (["--contains", "nowhere"], []),
    ],
)
def test_filters(run: Path, options: list[str], samples: list[tuple[str, int]]) -> None:
    assert [(row["domain"], row["sample"]) for row in rows(run, *options)] == samples


def test_json_lines_hold_plain_data_and_tokens_only_in_full(run: Path) -> None:
    (row,) = rows(run, "--contains", "bold")
    assert row["reference"] == "2"
    assert row["seconds"] == {}
    assert row["rewards"] == [{"component": "fake", "value": 1.5, "weight": 1.0}]
    assert "token_ids" not in row
    (whole,) = rows(run, "--contains", "bold", "--full")
    assert len(whole["token_ids"]) == 7  # type: ignore[arg-type]


def test_json_has_no_limit_of_its_own_but_the_screen_has(tmp_path: Path) -> None:
    tracker = ParquetTracker()
    tracker.start(RunInfo("id", "test", tmp_path, {}, {}))
    tracker.log_rollouts(1, [make_group([1.0] * 15)])
    assert len(rows(tmp_path)) == 15
    assert "10 of 15 shown" in call(tmp_path).output


def test_the_pager_gets_the_same_text(run: Path) -> None:
    assert call(run, "--pager").output.strip() == call(run).output.strip()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step", "7"], "no rollouts of step 7 in .*; there are steps 1 to 2"),
        (["--domain", "maths"], "no rollouts with domain 'maths' at step 2; there are: json, math"),
        (["--prompt", "p9"], "no rollouts with prompt_id 'p9' at step 2; there are: p2, p3"),
    ],
)
def test_what_is_not_there_is_one_error(run: Path, options: list[str], message: str) -> None:
    result = call(run, *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.search(message, result.stderr), result.stderr


def test_a_folder_without_rollouts_is_one_error(tmp_path: Path) -> None:
    result = call(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is it a run's folder, and was the 'parquet' tracker on?" in result.stderr
