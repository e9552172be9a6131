"""Checks of `contracts.Tracker`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roll_core.contracts import RunInfo
from roll_core.testing.fakes import make_group
from roll_core.testing.kit import CheckFailed, Subject, check
from roll_core.testing.snapshot import snapshot


@contextlib.contextmanager
def _started(subject: Subject) -> Iterator[Any]:
    """A tracker at work in an empty working directory, beside the folder of its run."""
    run, work = subject.folder / "run", subject.folder / "work"
    run.mkdir()
    work.mkdir()
    info = RunInfo("check-0", "check", run, {"seed": 0, "nested": {"values": [1, 2]}}, {"roll-core": "0"}, None, 10)
    with contextlib.chdir(work):
        tracker = subject.build()
        tracker.start(info)
        try:
            yield tracker
        finally:
            tracker.finish("finished")


def _use(tracker: Any, *scores: float | None) -> None:
    for step in range(3):
        tracker.log(step, {"reward/mean": 0.1 * step, "time/step_s": 1.0})
        tracker.log_rollouts(step, [make_group([0.0, 1.0], ticket=step), make_group(scores, ticket=step + 10)])


@check("trackers")
def survives_a_run(subject: Subject) -> None:
    """Start, metrics, rollouts (failed ones included) and finish go through."""
    with _started(subject) as tracker:
        _use(tracker, None, 0.5)


@check("trackers")
def survives_odd_numbers(subject: Subject) -> None:
    """NaN, infinity, huge numbers and an empty mapping do no harm."""
    with _started(subject) as tracker:
        tracker.log(0, {"a/nan": math.nan, "a/inf": math.inf, "a/minus": -math.inf, "a/huge": 1e300})
        tracker.log(1, {})
        tracker.log_rollouts(1, [])


@check("trackers")
def survives_steps_out_of_order(subject: Subject) -> None:
    """A step that comes again, or late, does no harm."""
    with _started(subject) as tracker:
        for step in (5, 5, 3, 6):
            tracker.log(step, {"reward/mean": float(step)})


@check("trackers")
def survives_a_second_finish(subject: Subject) -> None:
    """`finish` may be called twice."""
    with _started(subject) as tracker:
        tracker.log(0, {"reward/mean": 0.0})
        tracker.finish("finished")


@check("trackers")
def leaves_its_input_alone(subject: Subject) -> None:
    """Metrics and groups are not changed."""
    with _started(subject) as tracker:
        metrics, groups = {"reward/mean": 0.5, "time/step_s": 2.0}, [make_group([0.0, 1.0])]
        before = snapshot((metrics, groups))
        tracker.log(0, metrics)
        tracker.log_rollouts(0, groups)
        if snapshot((metrics, groups)) != before:
            raise CheckFailed("its input was changed: other trackers get the same objects")


@check("trackers")
def writes_only_into_the_run_folder(subject: Subject) -> None:
    """Nothing appears in the working directory or beside the run folder."""
    with _started(subject) as tracker:
        _use(tracker, 0.5)
    strays = [*(subject.folder / "work").rglob("*"), *(p for p in subject.folder.iterdir() if p.name not in _OWN)]
    if strays:
        names = ", ".join(sorted(str(Path(p).relative_to(subject.folder)) for p in strays)[:5])
        raise CheckFailed(f"it wrote outside the run folder: {names}; write below RunInfo.folder")


_OWN = {"run", "work"}
