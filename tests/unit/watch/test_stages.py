"""Bounds of stages, on a clock that the tests move."""

from __future__ import annotations

import asyncio
import math

import pytest

from roll_core.watch.stages import BETWEEN, Stages


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stages(clock: Clock) -> Stages:
    return Stages(10.0, 3.0, clock)


def enter(stages: Stages, name: str = "update", limit_s: float | None = None):
    return stages.enter(name, 7, limit_s, is_blocking=False)


def test_a_stage_is_overdue_once_and_immovable_once(stages: Stages, clock: Clock) -> None:
    stage = enter(stages)
    assert stages.current is stage
    assert stages.next_s() == 10.0
    clock.now += 9.9
    assert stages.overdue() is None
    clock.now += 0.1
    assert stages.overdue() is stage
    assert stages.overdue() is None
    assert stages.next_s() == 3.0
    clock.now += 2.9
    assert stages.immovable() is None
    clock.now += 0.1
    assert stages.immovable() is stage
    assert stages.immovable() is None
    assert stages.next_s() == math.inf


def test_the_time_between_stages_is_bounded_and_begins_anew_after_each(stages: Stages, clock: Clock) -> None:
    clock.now += 9.0
    stages.leave(enter(stages))
    clock.now += 9.0
    assert stages.overdue() is None
    clock.now += 1.0
    between = stages.overdue()
    assert between is not None
    assert (between.name, between.step, between.label) == (BETWEEN, 7, "the time after step 7")


def test_no_time_passes_between_stages_while_one_is_open(stages: Stages, clock: Clock) -> None:
    stage = enter(stages, limit_s=100.0)
    clock.now += 99.0
    assert stages.overdue() is None
    clock.now += 1.0
    assert stages.overdue() is stage


def test_the_outermost_of_two_overdue_stages_comes_first(stages: Stages, clock: Clock) -> None:
    outer, inner = enter(stages, "evaluation"), enter(stages, "rollout", 2.0)
    assert stages.current is inner
    clock.now += 2.0
    assert stages.overdue() is inner
    clock.now += 8.0
    assert stages.overdue() is outer


def test_after_a_hang_everything_is_bounded_by_the_grace_until_it_is_renewed(stages: Stages, clock: Clock) -> None:
    stage = enter(stages)
    clock.now += 10.0
    assert stages.overdue() is stage
    stages.leave(stage)
    assert stages.current.limit_s == 3.0
    assert enter(stages, limit_s=50.0).limit_s == 3.0
    stages.renew()
    assert enter(stages, limit_s=50.0).limit_s == 50.0


def test_nobody_is_late_while_the_process_was_stopped(stages: Stages, clock: Clock) -> None:
    stage = enter(stages)
    clock.now += 500.0
    stages.forgive(495.0)
    assert stages.overdue() is None
    assert stages.next_s() == 5.0
    clock.now += 5.0
    assert stages.overdue() is stage
    clock.now += 100.0
    stages.forgive(98.0)
    assert stages.immovable() is None


def test_only_an_open_stage_is_cancelled(stages: Stages) -> None:
    async def run() -> list[bool]:
        stage = enter(stages)
        stage.cancel()
        ended = [stage.end()]  # before the loop came to cancelling
        stages.leave(stage)
        await asyncio.sleep(0)
        late = enter(stages)
        late.cancel()
        with pytest.raises(asyncio.CancelledError, match="stage 'update' of step 7 is over its bound of 10 s"):
            await asyncio.sleep(1000)
        return [*ended, late.end(), late.end()]

    assert asyncio.run(run()) == [False, True, False]


def test_a_stage_whose_loop_is_closed_cannot_be_cancelled_and_says_nothing(stages: Stages) -> None:
    async def run():
        return enter(stages)

    stage = asyncio.run(run())
    stage.cancel()
    assert not stage.end()
