"""Learning really happens, with every family of algorithm, full and LoRA, from config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import roll_core as roll
from roll_core.cli.main import cli
from roll_core.testing.tiny import make_tiny_model

VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "reinforce_pp, two updates a step": {
        "algorithm": {"advantage": "reinforce_pp", "loss": "ppo_clip"},
        "batch": {"prompts": 4, "group_size": 8, "max_prompt_tokens": 32, "mini_batches": 2},
    },
    "ppo with critic and KL": {
        "algorithm": {"advantage": "gae", "kl": {"coef": 0.001}},
        "critic": {"optim": {"lr": 3e-3}},
    },
    "gspo": {"algorithm": {"loss": {"use": "gspo", "clip_low": 0.2, "clip_high": 0.2}, "agg": "seq-mean-token-mean"}},
}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


@pytest.mark.parametrize("variant", VARIANTS)
def test_score_rises_on_a_task_learned_from_nothing(base_config: dict[str, Any], variant: str) -> None:
    change = {"steps": 25, "batch": {"group_size": 8}, "eval": {"at_start": False, "at_end": False}}
    run = roll.train(**merged(merged(base_config, change), VARIANTS[variant]))
    scores = [m["reward/score/letters"] for m in run.result.metrics]
    assert sum(scores[:3]) / 3 < 0.35
    assert sum(scores[-3:]) / 3 > 0.6, [round(s, 2) for s in scores]


def test_adapters_learn_and_reach_the_sampler(base_config: dict[str, Any], tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", initializer_range=0.3)
    change = {
        "steps": 12,
        "model": {"path": str(model), "lora": {"rank": 8, "alpha": 16}},
        "train": {"optim": {"lr": 2e-2}},
        "batch": {"group_size": 8},
        "eval": {"at_start": False, "at_end": False},
    }
    run = roll.train(**merged(base_config, change))
    scores = [m["reward/score/letters"] for m in run.result.metrics]
    assert sum(scores[-3:]) / 3 > 0.8, [round(s, 2) for s in scores]


def test_run_leaves_summary_plot_metrics_rollouts_and_checkpoint(base_config: dict[str, Any]) -> None:
    run = roll.train(**base_config)
    folder = Path(base_config["folder"])
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary["domains"]) == {"letters", "more"}
    assert {"before", "after", "n"} <= set(summary["domains"]["letters"])
    assert summary["mean_after"] == run.summary["mean_after"]
    assert summary["train_seconds"] > 0
    assert run.plot is not None
    assert run.plot.stat().st_size > 1000
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4, 4]
    assert len(list((folder / "rollouts").glob("*.parquet"))) == 4
    assert len(list((folder / "checkpoints").iterdir())) == 1


def test_mix_and_time_and_mismatch_are_reported(base_config: dict[str, Any]) -> None:
    metrics = roll.train(**base_config).result.metrics[-1]
    for name in (
        "mixer/target/letters", "mixer/dispatched/letters", "mixer/admitted/letters", "mixer/trained_tokens/letters",
        "reward/total/letters", "reward/verdict/letters", "train/grad_norm", "train/lr", "time/rollout_s",
        "time/update_s", "rollout/truncated_share", "rollout/response_tokens_mean/more",
    ):  # fmt: skip
        assert name in metrics, f"{name} is missing from {sorted(metrics)}"
    mismatch = [v for k, v in metrics.items() if "mismatch" in k or "logprob" in k]
    assert mismatch, sorted(metrics)


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}], ids=["full", "lora"])
def test_export_is_the_trained_policy(base_config: dict[str, Any], tmp_path: Path, lora: dict[str, Any] | None) -> None:
    config = base_config | {"steps": 2, "model": base_config["model"] | {"lora": lora}}
    config |= {"train": {"strategy": {"use": "local", "precision": "float32"}, "optim": {"lr": 1e-2}}}
    run = roll.train(**config)
    out = tmp_path / "exported"
    result = CliRunner().invoke(cli, ["export", str(run.folder), str(out)], obj=None)
    assert result.exit_code == 0, result.output
    again = roll.train(**config | {"folder": str(tmp_path / "again"), "model": {"path": str(out)}, "steps": 1})
    assert again.result.evaluations[0] == run.result.evaluations[2]
    refused = CliRunner().invoke(cli, ["export", str(run.folder), str(out)])
    assert refused.exit_code == 1
    assert "not empty" in refused.stderr


TRUNCATED = [{"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 1.3, "top_k": 20, "top_p": 0.9}]


@pytest.mark.parametrize("sampling", TRUNCATED, ids=str)
def test_trainer_and_sampler_agree_on_the_sampled_distribution(
    base_config: dict[str, Any], sampling: dict[str, Any]
) -> None:
    config = base_config | {"steps": 2, "eval": {"at_start": False, "at_end": False}}
    backend = {"use": "local", "precision": "float32"}
    config |= {"rollout": {"backend": backend, "sampling": {"max_new_tokens": 6} | sampling}}
    for metrics in roll.train(**config).result.metrics:
        assert metrics["policy/mismatch_abs"] < 1e-5
        assert metrics["policy/mismatch_outside"] == 0.0
