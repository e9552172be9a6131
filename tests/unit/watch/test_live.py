"""The live state that the watch keeps written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.cluster.spec import WorkerHealth
from roll_core.watch import Probes, Watch, read_status

NEVER = 600.0
Make = Callable[..., Watch]
Until = Callable[..., Any]
WORKER = WorkerHealth("rollout", 1, True, 4711, "node7", 12.5, "'generate' (step 3)", 8, 2**31)


def test_the_live_state_follows_the_run(tmp_path: Path, make: Make, until: Until) -> None:
    watch = make(limit_s=NEVER)
    watch.attach(Probes(health=lambda: [WORKER], queue=lambda: {"open": 3}))
    watch.update(run_id="r1", name="digits", mode="async", total_steps=9, can_scale=True, devices={"train": ["cpu"]})

    def now() -> Any:
        return read_status(tmp_path) if (tmp_path / "status.json").exists() else None

    with watch.running():
        with watch.stage("update", 4):
            status = until(lambda: (s := now()) and s.stage == "update" and s.workers and s)
            assert (status.state, status.stage_step, status.stage_limit_s) == ("running", 4, NEVER)
            assert (status.run_id, status.name, status.mode, status.total_steps) == ("r1", "digits", "async", 9)
            assert status.workers[0]["busy_with"] == "'generate' (step 3)"
            assert status.workers_asked is not None
            assert status.queue == {"open": 3}
            assert status.can_scale
            assert [(w["who"], w["whom"]) for w in status.waits] == [("engine", "update")]
            assert status.rss_bytes is None or status.rss_bytes > 2**20
            beat = status.heartbeat
            until(lambda: now().heartbeat > beat)
        watch.update(step=5, staleness_mean=0.5, staleness_max=2.0, tokens_per_s=100.0, saved_step=5, replicas=3)
        status = until(lambda: (s := now()).step == 5 and s)
        assert (status.staleness_mean, status.tokens_per_s, status.saved_step, status.replicas) == (0.5, 100.0, 5, 3)
        watch.update(outcome="interrupted")
    status = read_status(tmp_path)
    assert (status.state, status.step, status.workers, status.waits) == ("interrupted", 5, [], [])


def test_writes_are_as_seldom_as_asked_for(make: Make, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = make(limit_s=NEVER, pace_s=600.0)
    written: list[str] = []
    real = watch._live.write
    monkeypatch.setattr(watch._live, "write", lambda state, *rest: (written.append(state), real(state, *rest)))
    with watch.running():
        until(lambda: written)
        for step in range(200):
            watch.update(step=step)
            with watch.stage("rollout", step):
                pass
    assert written == ["running", "finished"]
