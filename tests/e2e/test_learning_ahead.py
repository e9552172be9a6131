"""At staleness 2 a policy learns as fast per update as in step with its rollouts: three seeds, paired."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

import roll_core as roll

SEEDS = (0, 1, 2)
STALENESS = 2
STEPS, EVERY = 36, 6
T_95 = 2.920
"""One-sided 95 % quantile of Student's t with two degrees of freedom."""


def held_out_curve(base: dict[str, Any], folder: Path, seed: int, rollout: dict[str, Any]) -> list[float]:
    """Held-out accuracy every few updates; 128 answers each, sampled with the weights of their step."""
    config = base | {
        "folder": str(folder),
        "seed": seed,
        "steps": STEPS,
        "domains": {"letters": base["domains"]["letters"]},
        "mixer": {"use": "ratio"},
        "batch": {"prompts": 4, "group_size": 8, "max_prompt_tokens": 32},
        "rollout": base["rollout"] | rollout,
        "eval": {"every": EVERY, "samples": 32, "greedy": False, "at_start": False},
        "checkpoint": {"every": 0, "at_end": False},
        "trackers": ["jsonl"],
    }
    if rollout["mode"] == "async":
        config["algorithm"] = {"correction": {"kind": "token_tis"}}
    result = roll.train(**config).result
    if rollout["mode"] == "async":
        behind = [row["rollout/staleness_mean"] for row in result.metrics]
        assert statistics.fmean(behind) > 1, "the rollouts were not ahead, so nothing was compared"
        assert max(row["rollout/staleness_max"] for row in result.metrics) == STALENESS
    return [result.evaluations[step]["letters"].sampled.value for step in range(EVERY, STEPS + 1, EVERY)]


@pytest.mark.timeout(600)
def test_the_learning_curve_is_no_worse_at_staleness_two(base_config: dict[str, Any], tmp_path: Path) -> None:
    """Paired by seed, asynchronous curves must not lie below the synchronous ones by more than two updates are worth.

    What two updates are worth is read off the synchronous curves; the difference is judged by its one-sided 95 % bound.
    """
    ahead = {"mode": "async", "max_staleness": STALENESS}
    sync = [held_out_curve(base_config, tmp_path / f"sync{seed}", seed, {"mode": "sync"}) for seed in SEEDS]
    late = [held_out_curve(base_config, tmp_path / f"async{seed}", seed, ahead) for seed in SEEDS]
    assert min(curve[-1] for curve in sync + late) > 0.5, (sync, late)
    worth = statistics.fmean((curve[-1] - curve[0]) / (STEPS - EVERY) * STALENESS for curve in sync)
    paired = [statistics.fmean(b) - statistics.fmean(a) for a, b in zip(sync, late, strict=True)]
    upper = statistics.fmean(paired) + T_95 * statistics.stdev(paired) / len(paired) ** 0.5
    assert upper > -worth, f"difference {paired}, two updates are worth {worth:.3f}: {sync} {late}"
