"""Metrics of one step's rollouts: lengths, truncation, admission, speed, time per stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from roll_core.rollout.collected import STALE, StepRollouts


class Stopwatch:
    """Wall-clock seconds per named stage of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time of the block to `stage`."""
        started = time.perf_counter()
        yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - started


def staleness_metrics(rollouts: StepRollouts, version: int) -> dict[str, float]:
    """How far behind the weights that sampled the trained tokens were.

    Args:
        rollouts: the groups of a step.
        version: of the weights that the step trains.

    Returns:
        `rollout/staleness_mean` over sampled tokens and `rollout/staleness_max`, in versions (absent without tokens);
        `rollout/stale_groups` trained beyond the bound, `rollout/stale_dropped` because of it.
    """
    counts = {
        "rollout/stale_groups": float(rollouts.stale),
        "rollout/stale_dropped": float(sum(reason == STALE for _, reason in rollouts.dropped)),
    }
    runs = [
        (version - run.policy.version, run.stop - run.start)
        for group in rollouts.admitted
        for rollout in group.scored
        for segment in rollout.segments
        for run in segment.versions
    ]
    tokens = sum(count for _, count in runs)
    if not tokens:
        return counts
    return counts | {
        "rollout/staleness_mean": sum(behind * count for behind, count in runs) / tokens,
        "rollout/staleness_max": float(max(behind for behind, count in runs if count)),
    }


def rollout_metrics(
    rollouts: StepRollouts, seconds: Mapping[str, float], *, is_ahead: bool = False
) -> dict[str, float]:
    """Flat metrics of a step.

    Args:
        rollouts: all groups of the step; samples that were stopped early are left out of lengths and shares.
        seconds: wall-clock seconds per stage.
        is_ahead: rollouts go on through the whole step, not in the stage "rollout" alone.

    Returns:
        `rollout/*` (tokens, shares, counts), `time/<stage>_s`, `time/step_s` and `time/rollout_tokens_per_s`.
    """
    every = [r for g in rollouts.groups for r in g.rollouts if r.finish_reason != "abort"]
    lengths = np.array([r.response_length for r in every] or [0])
    step_s = sum(seconds.values())
    metrics = {
        "rollout/response_tokens_mean": float(lengths.mean()),
        "rollout/response_tokens_max": float(lengths.max()),
        "rollout/truncated_share": sum(r.is_truncated for r in every) / max(1, len(every)),
        "rollout/groups_drawn": float(rollouts.drawn),
        "rollout/groups_admitted": float(len(rollouts.admitted)),
        "rollout/rounds": float(rollouts.rounds),
        "time/step_s": step_s,
        "time/rollout_tokens_per_s": float(lengths.sum())
        / max(1e-9, step_s if is_ahead else seconds.get("rollout", 0.0)),
        "time/samples_per_s": len(every) / max(1e-9, step_s),
    }
    for reason, n in Counter(reason for _, reason in rollouts.dropped).items():
        metrics[f"rollout/dropped_{reason}"] = float(n)
    for name in sorted({r.ticket.domain for r in every}):
        own = [r.response_length for r in every if r.ticket.domain == name]
        metrics[f"rollout/response_tokens_mean/{name}"] = float(np.mean(own))
    return metrics | {f"time/{stage}_s": value for stage, value in seconds.items()}
