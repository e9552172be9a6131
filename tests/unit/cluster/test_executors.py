"""One contract, two executors."""

from __future__ import annotations

import asyncio
import pickle
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest

from roll_core.cluster import PlacementError, Stuck, WorkerLost
from roll_core.cluster.processes import is_running
from roll_core.cluster.waits import WAITS
from roll_core.errors import ComponentError, ConfigError, PluginError

ASK = {"timeout_s": 20.0, "what": "a test"}


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


# --- calls ---


def test_results_come_in_rank_order(pair):
    assert pair.size == 2
    assert pair.call("add", 1, b=2, **ASK) == [6, 6]
    assert [rank for rank, _, _ in pair.call("who", **ASK)] == [0, 1]
    assert pair.scatter("add", [(1, 2), (3, 4)], **ASK) == [6, 14]
    assert pair.submit(1, "add", 5, b=1, **ASK).result(20) == 12
    with pytest.raises(ConfigError, match="3 sets of arguments for 2 workers of role 'pair'"):
        pair.scatter("add", [(1,)] * 3, **ASK)


def test_ranks_know_each_other(pair):
    first, second = pair.call("env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", **ASK)
    assert (first[:3], second[:3]) == (["0", "2", "0"], ["1", "2", "1"])
    assert first[3:] == second[3:]
    assert int(first[4]) > 0


def test_everything_of_a_worker_happens_on_one_thread_in_order(pair):
    threads = {thread for _ in range(3) for _, _, thread in pair.call("who", **ASK)}
    assert len(threads) == 2
    futures = [pair.submit(0, "note", i, **ASK) for i in range(50)]
    wait(futures, 20)
    assert futures[-1].result()[-50:] == list(range(50))
    assert pair.call("runs_own_loop", **ASK) == [5, 5]


def test_coroutine_methods_run_many_at_once(pair):
    futures = [pair.submit(0, "wait_for_open", i, **ASK) for i in range(100)]
    pair.call("open", **ASK)
    assert [future.result(20) for future in futures] == list(range(100))


def test_a_future_can_be_awaited_and_cancelled(pair):
    async def cancel():
        task = asyncio.ensure_future(asyncio.wrap_future(pair.submit(1, "forever", **ASK)))
        await asyncio.wait({task}, timeout=0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = pair.call("count_cancelled", **ASK)[1]
    asyncio.run(cancel())
    assert pair.call("count_cancelled", **ASK) == [0, before + 1]


def test_large_arrays_travel_out_of_band_and_arrive_read_only(pair, executor):
    executor.transfers.take_metrics()
    array = np.arange(500_000, dtype=np.float64)
    assert pair.call("total", array, **ASK) == [(array.sum(), False)] * 2
    got = pair.call("big", 500_000, **ASK)
    assert all(np.array_equal(each, array) and not each.flags.writeable for each in got)
    stages = executor.transfers.by_stage()
    once = executor.name == "ray"
    assert (
        array.nbytes * (1 if once else 2) <= stages["pair.total"].sent_bytes < array.nbytes * (1 if once else 2) + 5e3
    )
    assert stages["pair.total"].sent_s > 0
    assert 2 * array.nbytes <= stages["pair.big"].received_bytes < 2 * array.nbytes + 5e3
    metrics = executor.transfers.take_metrics()
    assert metrics["transfer/pair.big_bytes"] == pytest.approx(8e6, rel=0.01) and metrics["transfer/pair.big_s"] > 0
    assert set(metrics) == {f"transfer/pair.{name}_{unit}" for name in ("total", "big") for unit in ("bytes", "s")}
    assert executor.transfers.by_stage() == {}


def test_each_rank_gets_its_own_share_and_what_several_get_is_packed_once(pair, executor):
    one, two = (np.zeros(100_000), "one"), (np.ones(200_000), "two")
    executor.transfers.take_metrics()
    assert pair.scatter("size_of", [one, two], **ASK) == [800_000, 1_600_000]
    moved = executor.transfers.take_metrics()["transfer/pair.size_of_bytes"]
    assert 2_400_000 <= moved < 2_405_000
    assert pair.scatter("size_of", [one, one], **ASK) == [800_000] * 2
    moved = executor.transfers.take_metrics()["transfer/pair.size_of_bytes"]
    once = 1 if executor.name == "ray" else 2
    assert 800_000 * once <= moved < 800_000 * once + 5_000


def test_a_submitted_array_may_be_changed_at_once(pair):
    array = np.ones(1_000_000)
    future = pair.submit(0, "total", array, **ASK)
    array[:] = 7.0
    assert future.result(20)[0] == 1_000_000


def test_a_reference_is_packed_once_and_named_anywhere(pair, executor):
    reference = executor.put({"x": np.ones(100_000)})
    assert reference.nbytes > 800_000
    assert pair.call("total_of", [reference, reference], **ASK) == [200_000.0] * 2
    assert pair.scatter("total_of", [([reference],), ([],)], **ASK) == [100_000.0, 0.0]
    put = executor.transfers.take_metrics()["transfer/put_bytes"]
    assert put == (reference.nbytes if executor.name == "ray" else 0)  # locally it travels with each call
    reference.release()
    with pytest.raises(ValueError, match="was released"):
        pair.call("total_of", [reference], **ASK)


def test_health_shows_what_a_worker_is_at(pair):
    future = pair.submit(0, "sleep", 0.8, timeout_s=20, what="step 3")
    time.sleep(0.3)
    busy, idle = pair.health()
    assert busy.is_alive and 0.2 < busy.busy_s < 5 and busy.busy_with == "'sleep' (step 3)" and busy.queued == 1
    assert idle.is_alive and idle.busy_s is None and idle.rss_bytes > 5_000_000 and is_running(idle.pid)
    assert any("driver waits for pair[0]: 'sleep' (step 3)" in each.render() for each in WAITS.open())
    assert "pair[0] pid" in busy.render() and "idle" in idle.render()
    assert future.result(20) == 0.8
    assert WAITS.open() == []


# --- errors ---


def test_what_a_worker_raises_is_raised_here(pair):
    with pytest.raises(ValueError, match="rank 0 cannot") as caught:
        pair.call("fail", **ASK)
    assert "in fail" in str(caught.value.__cause__)
    notes = "\n".join(caught.value.__notes__)
    assert "raised by pair[0] (pid " in notes and "'fail' (a test)" in notes
    assert "pair[1] failed too: ValueError: rank 1 cannot" in notes
    with pytest.raises(ComponentError, match="LocalError: this and that"):
        pair.call("fail", "unpicklable", **ASK)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pair.call("fail", "result", **ASK)
    with pytest.raises(AttributeError, match="AsyncWorker has no method 'nothing'"):
        pair.call("nothing", **ASK)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pair.call("add", lambda: 1, **ASK)
    assert pair.call("add", 1, **ASK) == [2, 2]


def test_the_others_are_not_waited_for_when_one_raises_or_ends(start):
    group = start()
    pids = [pid for _, pid, _ in group.call("who", **ASK)]
    begin = time.monotonic()
    with pytest.raises(ValueError, match="rank 1 cannot") as failed:
        group.call("fail_or_hang", 1, timeout_s=60, what="update")
    assert "actor[0] had not answered yet" in failed.value.__notes__
    with pytest.raises(WorkerLost) as caught:
        group.call("exit_or_hang", 1, 3, timeout_s=60, what="update")
    assert time.monotonic() - begin < 15
    lost = pickle.loads(pickle.dumps(caught.value))
    assert (lost.role, lost.index) == ("actor", 1)
    assert lost.node and lost.node in str(lost)
    assert f"actor[1] (pid {pids[1]}" in str(lost) and "last words of the worker" in str(lost)
    with pytest.raises(WorkerLost):
        group.submit(1, "add", 1, **ASK).result(10)
    assert [each.is_alive for each in group.health()] == [True, False]
    with pytest.raises(ConfigError, match="cannot be replaced one by one"):
        group.restart(1)
    group.close()
    assert all(gone(pid) for pid in pids)


def test_a_silent_worker_is_shown_with_its_stack_whatever_it_is_in(start):
    group = start(count=3)
    stuck = [
        group.submit(i, m, timeout_s=1.5, what="step 5") for i, m in enumerate(("hang_in_python", "hang_in_regex"))
    ]
    for index, (future, name) in enumerate(zip(stuck, ("hang_in_python", "hang_in_regex"), strict=True)):
        with pytest.raises(Stuck, match=f"driver waits for actor\\[{index}\\]: '{name}' \\(step 5\\)") as caught:
            future.result(20)
        assert f"in {name}" in caught.value.stacks[index]
    with pytest.raises(Stuck) as caught:
        group.call("sleep", 30, timeout_s=1, what="step 6")
    stuck = pickle.loads(pickle.dumps(caught.value))
    assert (stuck.role, stuck.indices, stuck.what) == ("actor", (0, 1, 2), "step 6")
    assert "in sleep" in stuck.stacks[2]
    assert "actor[0] (pid" in str(stuck) and "at 'hang_in_python' (step 5)" in str(stuck)


def test_a_waiting_coroutine_is_shown_too(start):
    group = start(count=1)
    with pytest.raises(Stuck) as caught:
        group.submit(0, "forever", timeout_s=0.5, what="generate").result(20)
    assert "coroutine 'forever'" in str(caught.value) and "await asyncio.sleep(1000)" in str(caught.value)
    future = group.submit(0, "hang_in_c", timeout_s=1.0, what="generate")
    with pytest.raises(Stuck, match="in hang_in_c"):
        future.result(20)


# --- start, restart, close ---


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [("raise", ValueError, "cannot build rank 0"), ("exit", WorkerLost, "about to leave"), ("hang", Stuck, "__init__")],
)
def test_a_failed_start_leaves_nothing(start, executor, how, error, message):
    with pytest.raises(error, match=message):
        start(
            role="broken",
            count=1,
            kwargs={"fail": how},
            timeout_s=(3 if executor.name == "local" else 6) if how == "hang" else 60,
        )


def test_a_replica_is_replaced_alone(start):
    group = start(role="rollout", is_restartable=True)
    (_, first, _), (_, second, _) = group.call("who", **ASK)
    assert group.call("env", "ROLL_ROLE", "ROLL_INDEX", "RANK", **ASK)[1] == ["rollout", "1", None]
    running = group.submit(1, "forever", **ASK)
    group.call("note", "old", **ASK)
    group.restart(1)
    with pytest.raises(WorkerLost, match="ended by the driver"):
        running.result(10)
    assert gone(second)
    (_, same, _), (rank, fresh, _) = group.call("who", **ASK)
    assert (same, rank) == (first, 1) and fresh not in (first, second)
    assert group.call("note", "new", **ASK) == [["old", "new"], ["new"]]
    with pytest.raises(WorkerLost):
        group.submit(1, "sys_exit", 4, **ASK).result(20)
    group.restart(1)
    assert group.call("add", 1, **ASK) == [1, 1]


def test_closing_lets_objects_close_and_leaves_no_process(start, tmp_path):
    group = start(role="closing", kwargs={"log": str(tmp_path / "closed")}, env={"ROLL_TEST": "yes"})
    assert group.call("env", "ROLL_TEST", **ASK) == [["yes"], ["yes"]]
    pids = [pid for _, pid, _ in group.call("who", **ASK)] + group.call("spawn", **ASK)
    group.close()
    group.close()
    assert all(gone(pid) for pid in pids)
    assert sorted(Path(tmp_path / "closed").read_text().split("\n")) == ["", "closed 0", "closed 1"]
    with pytest.raises(WorkerLost, match="ended by the driver"):
        group.call("add", 1, **ASK)


def test_what_does_not_fit_is_refused(executor, start):
    with pytest.raises(PlacementError, match="asks for") as caught:
        executor._placement_timeout_s = 1.5
        start(role="large", count=2, gpus=3)
    text = str(caught.value)
    asked, there = ("2 x {0.5 CPU, 3 GPU}", "4 CPU") if executor.name == "ray" else ("3 devices", "devices are none")
    assert asked in text and there in text
    executor._placement_timeout_s = 20


def test_a_role_can_use_the_place_of_another(start):
    start(role="train", count=2)
    assert start(role="guest", count=1, share_with="train", cpus=1).call("add", 1, **ASK) == [1]
    with pytest.raises(PlacementError, match="role 'train' is running already"):
        start(role="train", count=2)
    with pytest.raises(PlacementError, match="shares with 'nobody'"):
        start(role="lost", share_with="nobody")
    with pytest.raises(PlacementError, match="3 processes of role 'many' cannot share the 2 of 'train'"):
        start(role="many", count=3, share_with="train")


def test_versions_are_compared(executor, start, monkeypatch):
    from roll_core.cluster import proof

    real = proof._versions()
    monkeypatch.setattr(proof, "_versions", lambda: {**real, "numpy": "1.0"})
    with pytest.raises(PluginError, match=r"old\[0\].*numpy is 1.0 here and"):
        start(role="old", count=1)
