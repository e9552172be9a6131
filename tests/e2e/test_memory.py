"""Memory is flat: no process of a run grows with the number of steps. And a leak would be seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import memory_run
import numpy as np
import pytest

MAX_KIB_A_STEP = 60.0
"""Below this the trend is taken for noise of the allocators; a leak of 200 KB a step is far above."""
MAX_BLOCKS_A_STEP = 60.0
"""The same for Python's objects, which show small leaks too."""
AHEAD_BLOCKS_A_STEP = 240.0
"""What is rolled out ahead comes and goes, and a trend of such noise may reach a hundred."""
WARM_UP = 0.4
"""Share of the steps after which caches and pools are taken to be full."""

LEAKY = """
from roll_core import verifier

KEPT = []

@verifier
def digits(response, reference):
    KEPT.append(bytearray(12_500))
    return sum(c.isdigit() for c in response) / max(len(response), 1)
"""


def trend(series: list[int], warm_up: float = WARM_UP) -> float:
    """Growth a step after the warm-up: the median slope over all pairs of steps (Theil and Sen).

    The largest twentieth of the changes, up and down, is cut to the size of the next one first: an allocator that takes
    a few megabytes at once, now and then, is no trend.
    """
    later = np.asarray(series[int(len(series) * warm_up) :], float)
    steps = np.diff(later)
    level = np.concatenate([[0.0], np.cumsum(np.clip(steps, *np.quantile(steps, [0.05, 0.95])))])
    first, second = np.triu_indices(len(level), 1)
    return float(np.median((level[second] - level[first]) / (second - first)))


def trends(config: dict[str, Any], tmp_path: Path, **environment: str) -> dict[str, float]:
    """Train in a process of its own; KiB a step of the driver and of each worker, and blocks a step of the driver."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = tmp_path / "memory.json"
    command = [sys.executable, memory_run.__file__, str(tmp_path / "config.json"), str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    memory = json.loads(out.read_text())
    found = {"driver": trend(memory["rss"].pop("driver"))}
    lived = [series for series in memory["rss"].values() if len(series) >= 0.9 * config["steps"] and all(series)]
    found |= {f"worker {number}": trend(series) for number, series in enumerate(lived)}
    return found | {"blocks": trend(memory["blocks"])}


def quick(base: dict[str, Any], steps: int, mode: str = "sync") -> dict[str, Any]:
    rollout = base["rollout"] | {"mode": mode} | ({"max_staleness": 2} if mode == "async" else {})
    evaluation = {"at_start": False, "at_end": False}
    return base | {"steps": steps, "rollout": rollout, "eval": evaluation, "checkpoint": {"every": 4, "keep": 2}}


def assert_flat(found: dict[str, float], workers: int, blocks: float) -> None:
    assert len(found) == 2 + workers, found
    limits = {name: blocks if name == "blocks" else MAX_KIB_A_STEP for name in found}
    assert all(value < limits[name] for name, value in found.items()), found


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_two_hundred_steps_leave_nothing_behind(base_config: dict[str, Any], tmp_path: Path, mode: str) -> None:
    blocks = AHEAD_BLOCKS_A_STEP if mode == "async" else MAX_BLOCKS_A_STEP
    assert_flat(trends(quick(base_config, 200, mode), tmp_path), workers=1, blocks=blocks)


def test_a_leak_is_seen_in_the_driver_and_in_a_worker(base_config: dict[str, Any], tmp_path: Path) -> None:
    rollfile = tmp_path / "leaky.py"
    rollfile.write_text(LEAKY)
    config = quick(base_config, 80) | {"plugins": {"rollfile": str(rollfile)}}
    found = trends(config, tmp_path, LEAK_BYTES="200000", LEAK_OBJECTS="100")
    assert 150 < found["driver"] < 300
    assert 150 < found["worker 0"] < 300
    assert found["blocks"] > MAX_BLOCKS_A_STEP


def test_jumps_are_no_trend_and_a_leak_at_every_checkpoint_is_one() -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(-200, 200, 200)
    jumps = np.cumsum([3500 if step in (90, 130, 170) else 5 for step in range(200)])
    assert trend((jumps + noise).tolist()) < MAX_KIB_A_STEP
    lumps = np.cumsum([400 if step % 4 == 0 else 0 for step in range(200)])
    assert trend((lumps + noise).tolist()) > MAX_KIB_A_STEP
