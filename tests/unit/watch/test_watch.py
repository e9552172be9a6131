"""What the watch does when something hangs. What hangs for ever has tiny bounds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from roll_core.cluster.errors import Stuck
from roll_core.cluster.spec import WorkerHealth
from roll_core.cluster.waits import WAITS, Wait
from roll_core.watch import EXIT_HUNG, Probes, Watch, read_status

SOON, NEVER = 0.05, 600.0
Make = Callable[..., Watch]
Until = Callable[..., Any]
WORKER = WorkerHealth("rollout", 1, True, 4711, "node7", 12.5, "'generate' (step 3)", 8, 2**31)


async def leaf_that_never_ends() -> None:
    await asyncio.get_running_loop().create_future()


async def hang(watch: Watch) -> None:
    with watch.stage("rollout", 3):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(leaf_that_never_ends())


# --- stages that await ---


def test_a_stage_that_awaits_for_ever_ends_as_stuck_with_a_report(
    tmp_path: Path, exits: Any, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    watch = make()
    queue = {"open": 4, "requests": 9}
    stacks = {"rollout[1]": "worker thread (most recent call first):\n  File generate.py", "rollout[2]": ""}
    watch.attach(Probes(health=lambda: [WORKER], stacks=lambda: stacks, queue=lambda: queue))
    bystander = threading.Thread(target=exits.happened.wait, name="a-bystander", daemon=True)
    bystander.start()
    with (
        pytest.raises(Stuck) as stuck,
        watch.running(),
        WAITS.during(Wait("driver", "rollout[1]", "'generate' (step 3)", 60.0)),
    ):
        asyncio.run(hang(watch))
    assert isinstance(stuck.value.__cause__, asyncio.CancelledError)
    assert stuck.value.what == "stage 'rollout' of step 3"
    (report,) = (tmp_path / "hangs").iterdir()
    text = report.read_text()
    for line in (
        "stage 'rollout' of step 3 has not ended within 0.05 s",
        "engine waits for rollout: step 3",
        "driver waits for rollout[1]: 'generate' (step 3)",
        "queue: 4 open, 9 requests",
        "rollout[1] pid 4711 on node7: 'generate' (step 3) for 12.5 s (8 unanswered), 2.00 GiB",
    ):
        assert line in str(stuck.value)
        assert line in text
    assert str(report) in str(stuck.value)
    for line in (
        "(MainThread)",
        "(a-bystander)",
        "worker rollout[1]:",
        "File generate.py",
        "it wrote no stack",
        "leaf_that",
    ):
        assert line in text
    assert "5 tasks like" in text, "equal stacks are written once"
    assert "roll-watch" not in text
    assert "leaf_that_never_ends" in caplog.text
    status = read_status(tmp_path)
    assert (status.state, status.hang) == ("failed", f"hangs/{report.name}")
    assert "Stuck: stage 'rollout'" in status.error
    assert not exits.codes
    assert [w for w in WAITS.open() if w.who == "engine"] == []


def test_what_comes_out_of_a_cancelled_stage_is_stuck_whatever_it_says(make: Make) -> None:
    watch = make()

    async def run() -> None:
        with watch.stage("settle", 1):
            try:
                await leaf_that_never_ends()
            finally:
                raise ValueError("a consequence")

    with pytest.raises(Stuck) as stuck, watch.running():
        asyncio.run(run())
    assert isinstance(stuck.value.__cause__, ValueError)


def test_a_task_goes_on_after_its_stage_was_cancelled(make: Make) -> None:
    watch = make()

    async def run() -> str:
        try:
            await hang(watch)
        except Stuck:
            watch.renew()
            with watch.stage("rollout", 3, limit_s=NEVER):
                await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
        return "resumed"

    with watch.running():
        assert asyncio.run(run()) == "resumed"


def test_a_cancellation_from_elsewhere_stays_one(tmp_path: Path, make: Make) -> None:
    watch = make(limit_s=NEVER)

    async def run() -> None:
        task = asyncio.ensure_future(hang(watch))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError), watch.running():
        asyncio.run(run())
    assert read_status(tmp_path).state == "interrupted"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")])
def test_errors_of_a_stage_that_is_in_time_pass_through(tmp_path: Path, make: Make, error: BaseException) -> None:
    watch = make(limit_s=NEVER)
    with pytest.raises(type(error)), watch.running(), watch.stage("update", 1):
        raise error
    status = read_status(tmp_path)
    is_failure = isinstance(error, RuntimeError)
    assert status.state == ("failed" if is_failure else "interrupted")
    assert status.error == ("RuntimeError: broken" if is_failure else "")


# --- stages that block ---


def test_a_stage_that_blocks_ends_with_the_process(tmp_path: Path, exits: Any, make: Make) -> None:
    watch = make(grace_s=SOON)

    async def run() -> None:
        with watch.stage("update", 5, is_blocking=True):
            assert exits.happened.wait(60.0)

    with watch.running():
        asyncio.run(run())
    assert exits.codes == [EXIT_HUNG] == [75]
    assert exits.states == ["hung"]
    assert "exits.happened.wait" in next((tmp_path / "hangs").iterdir()).read_text()


def test_so_does_a_task_that_will_not_be_cancelled(exits: Any, make: Make) -> None:
    watch = make(grace_s=SOON)

    async def run() -> None:
        with watch.stage("rollout", 5):
            while not exits.happened.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

    with watch.running():
        asyncio.run(run())
    assert exits.codes == [EXIT_HUNG]


def test_so_does_what_hangs_between_two_stages(tmp_path: Path, exits: Any, make: Make) -> None:
    watch = make(grace_s=SOON)
    with watch.running():
        assert exits.happened.wait(60.0)
    assert exits.codes == [EXIT_HUNG]
    assert [path.name.partition("-between")[1] for path in (tmp_path / "hangs").iterdir()] == ["-between"]


def test_a_stage_that_ends_in_the_grace_period_only_leaves_a_report(
    tmp_path: Path, exits: Any, make: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    watch = make(limit_s=NEVER)
    with watch.running(), watch.stage("update", 5, limit_s=SOON, is_blocking=True):
        until((tmp_path / "hangs").is_dir)
        until(lambda: "stage 'update' of step 5 has not ended" in caplog.text)
    assert not exits.codes
    assert "stage 'update' of step 5 has ended after all" in caplog.text
    assert read_status(tmp_path).state == "finished"


def test_a_stage_that_waits_for_a_worker_on_the_loops_thread_is_let_go(exits: Any, make: Make) -> None:
    watch = make()
    answer: Future[None] = Future()
    watch.attach(Probes(break_off=answer.set_exception))

    async def run() -> None:
        with watch.stage("update", 5, is_blocking=True):
            answer.result(60.0)

    with pytest.raises(Stuck, match="stage 'update' of step 5 has not ended") as stuck, watch.running():
        asyncio.run(run())
    assert "full report: " in str(stuck.value)
    assert not exits.codes


def test_workers_are_not_given_up_for_a_stage_that_can_be_cancelled(make: Make) -> None:
    watch = make()
    given_up: list[BaseException] = []
    watch.attach(Probes(break_off=given_up.append))
    with pytest.raises(Stuck), watch.running():
        asyncio.run(hang(watch))
    assert not given_up


def test_a_process_that_may_not_exit_says_so_once(
    exits: Any, make: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    watch = make(grace_s=SOON, may_exit=False)

    def said() -> int:
        return sum(record.getMessage().endswith("end this process and resume the run") for record in caplog.records)

    with watch.running(), watch.stage("update", 5, is_blocking=True):
        until(said)
        time.sleep(0.1)
    assert said() == 1
    assert not exits.codes


def test_a_real_process_ends_with_its_status_and_its_report(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom roll_core.watch import Watch\n"
        "watch = Watch(Path(sys.argv[1]), limit_s=0.2, grace_s=0.2, pace_s=0.05)\n"
        "with watch.running(), watch.stage('update', 2, is_blocking=True):\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == EXIT_HUNG
    assert "stage 'update' of step 2 has not ended within 0.2 s" in done.stderr
    assert "(MainThread), most recent call last" in done.stderr
    assert "the process ends itself with status 75" in done.stderr
    assert read_status(tmp_path).state == "hung"


# --- the watch itself ---


def test_parts_that_do_not_answer_do_not_stop_the_watch(exits: Any, make: Make) -> None:
    watch = make(answer_s=0.1)

    def broken() -> dict[str, str]:
        raise RuntimeError("no such worker")

    watch.attach(Probes(health=lambda: exits.happened.wait() and [], stacks=broken))
    with pytest.raises(Stuck) as stuck, watch.running():
        asyncio.run(hang(watch))
    assert "no answer about health: silence for 0.1 s" in str(stuck.value)
    assert "no answer about stacks: no such worker" in str(stuck.value)


def test_a_report_that_cannot_be_written_is_in_the_error(tmp_path: Path, make: Make) -> None:
    (tmp_path / "hangs").write_text("a file in the way")
    watch = make()
    with pytest.raises(Stuck, match="the full report could not be written"), watch.running():
        asyncio.run(hang(watch))


def test_a_state_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, make: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    watch = make(folder, limit_s=NEVER)
    with watch.running():
        until(lambda: "the live state of the run cannot be written" in caplog.text)
        for step in range(5):
            watch.update(step=step)
            time.sleep(0.02)
        folder.mkdir()
        watch.update(step=9)
        until((folder / "status.json").exists)
    assert caplog.text.count("the live state of the run cannot be written") == 1


def test_a_loop_that_stands_still_where_it_should_move_is_named_with_its_stack(
    make: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    watch = make(limit_s=NEVER, lag_s=0.05)

    async def run(*, is_blocking: bool) -> None:
        with watch.stage("rollout", 2, is_blocking=is_blocking):
            if is_blocking:
                time.sleep(0.3)
            else:
                block_the_loop(until, lambda: "has not moved" in caplog.text)

    with watch.running():
        asyncio.run(run(is_blocking=True))
        assert "has not moved" not in caplog.text
        asyncio.run(run(is_blocking=False))
    assert "stage 'rollout' of step 2: the event loop has not moved for" in caplog.text
    assert "block_the_loop" in caplog.text


def block_the_loop(until: Until, condition: Callable[[], bool]) -> None:
    until(condition)


def test_a_watch_that_fails_is_logged_and_goes_on(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = make()
    calls: list[int] = []
    overdue = watch._stages.overdue

    def flaky() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return overdue()

    monkeypatch.setattr(watch._stages, "overdue", flaky)
    monkeypatch.setattr(watch, "renew", lambda: None)
    with pytest.raises(Stuck), watch.running():
        asyncio.run(hang(watch))
    assert "the watch has failed" in caplog.text
