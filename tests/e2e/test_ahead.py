"""Rollouts ahead of training: the books close, nothing is too old, and resuming loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_files import rows_of, tokens_of, weights_of

import roll_core as roll

STEPS = 8


def ahead(base: dict[str, Any], mode: str, staleness: int | None = None) -> dict[str, Any]:
    rollout = base["rollout"] | {"mode": mode} | ({"max_staleness": staleness} if staleness else {})
    checkpoint = {"every": 2, "keep": 9}
    return base | {"steps": STEPS, "rollout": rollout, "checkpoint": checkpoint, "eval": {"every": 4}}


def long_tailed(base: dict[str, Any], policy: str) -> dict[str, Any]:
    """A run where the answers of one domain outlive many steps."""
    domains = base["domains"] | {"more": base["domains"]["more"] | {"sampling": {"max_new_tokens": 300}}}
    config = ahead(base | {"domains": domains}, "async", 1)
    config["rollout"] |= {"on_stale": policy}
    mixer = {"use": "ratio", "weights": {"letters": 5, "more": 3}}
    return config | {"mixer": mixer, "algorithm": {"correction": {"kind": "token_tis"}}}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "rollout/groups_admitted" in row]


@pytest.mark.parametrize(("mode", "staleness"), [("one_step", None), ("async", 1), ("async", 3)])
def test_every_step_trains_a_whole_batch_within_the_bound(
    base_config: dict[str, Any], mode: str, staleness: int | None
) -> None:
    run = roll.train(**ahead(base_config, mode, staleness))
    rows = metrics_of(run.folder)
    assert len(rows) == STEPS
    bound = staleness or 1
    for row in rows:
        assert row["rollout/groups_admitted"] == 4
        assert 0 <= row["rollout/staleness_max"] <= bound
    assert max(row["rollout/staleness_max"] for row in rows) >= 1
    domains = ("letters", "more")
    drawn = sum(row["rollout/groups_drawn"] for row in rows)
    carried = sum(rows[-1][f"mixer/carried/{name}"] for name in domains)
    assert drawn == STEPS * 4 and carried == 0
    assert sorted(run.result.evaluations) == [0, 4, 8]


def test_one_step_ahead_every_token_is_of_the_version_before(base_config: dict[str, Any]) -> None:
    rows = metrics_of(roll.train(**ahead(base_config, "one_step")).folder)
    assert [row["rollout/staleness_mean"] for row in rows] == [0.0] + [1.0] * (STEPS - 1)


def test_one_step_ahead_resumes_bit_equal(
    base_config: dict[str, Any], tmp_path: Path, resume_run: Callable[..., Any]
) -> None:
    config = ahead(base_config, "one_step") | {"filters": ["informative_groups"]}
    straight = roll.train(**config).folder
    stopped = tmp_path / "stopped"
    roll.train(**config | {"folder": str(stopped)})
    resume_run(stopped, 4)
    assert rows_of(stopped) == rows_of(straight)
    assert tokens_of(stopped) == tokens_of(straight)
    assert weights_of(stopped) == weights_of(straight)


def test_an_asynchronous_run_resumes_with_what_was_under_way(
    base_config: dict[str, Any], tmp_path: Path, resume_run: Callable[..., Any]
) -> None:
    config = ahead(base_config, "async", 2)
    folder = roll.train(**config).folder
    pending = json.loads((folder / "checkpoints" / "step-00000004" / "pending" / "pending.json").read_text())
    waiting = len(pending["admitted"]) + len(pending["under_way"])
    assert 0 < waiting <= 3 * 4
    run = resume_run(folder, 4)
    assert run.result.steps == STEPS
    rows = metrics_of(folder)[-4:]
    assert all(row["rollout/groups_admitted"] == 4 and row["rollout/staleness_max"] <= 2 for row in rows)
    assert sum(row["rollout/groups_drawn"] for row in rows) == 4 * 4 - waiting + pending["drawn"]
    state = json.loads((folder / "checkpoints" / "step-00000008" / "state.json").read_text())
    totals = state["ledger"]["totals"].values()
    assert sum(t["drawn"] for t in totals) == sum(t["trained"] for t in totals) == STEPS * 4
    assert state["ledger"]["open"] == []


@pytest.mark.parametrize("policy", ["wait", "drop", "correct"])
def test_stale_groups_are_waited_for_dropped_or_corrected_and_the_books_close(
    base_config: dict[str, Any], resume_run: Callable[..., Any], policy: str
) -> None:
    folder = roll.train(**long_tailed(base_config, policy)).folder
    every = metrics_of(folder)
    resume_run(folder, 4)
    again = metrics_of(folder)[-4:]
    stale, dropped = (sum(row[f"rollout/stale_{what}"] for row in every) for what in ("groups", "dropped"))
    assert (stale > 0, dropped > 0) == (policy == "correct", policy == "drop")
    for row in (*every, *again):
        assert row["rollout/groups_admitted"] == 4
        assert row["rollout/staleness_max"] <= 1 or policy == "correct"
        assert (row["rollout/stale_groups"] > 0) == (row["rollout/staleness_max"] > 1)
    state = json.loads((folder / "checkpoints" / "step-00000008" / "state.json").read_text())
    totals = state["ledger"]["totals"].values()
    assert sum(t["trained"] for t in totals) == STEPS * 4
    assert {reason for t in totals for reason in t["dropped"]} <= {"stale"}
    in_flight = len(state["ledger"]["open"])
    assert sum(t["drawn"] for t in totals) == STEPS * 4 + sum(sum(t["dropped"].values()) for t in totals) + in_flight
    assert in_flight == 0 or policy == "drop"


def test_evaluation_sees_the_weights_of_its_step_in_every_mode(base_config: dict[str, Any], tmp_path: Path) -> None:
    seen = {}
    for mode in ("sync", "one_step", "async"):
        config = base_config | {"folder": str(tmp_path / mode), "steps": 2}
        run = roll.train(**config | {"rollout": base_config["rollout"] | {"mode": mode}, "eval": {"samples": 4}})
        assert sorted(run.result.evaluations) == [0, 2]
        seen[mode] = run.result.evaluations[0]
    assert seen["sync"] == seen["one_step"] == seen["async"]
