"""Hosts that serve, are lost, stand still, and come back; requests that are answered once whatever happens."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest
from role_handlers import QUICK

from roll_core.cluster import Stuck, WorkerLost
from roll_core.cluster.processes import is_running
from roll_core.errors import ComponentError
from roll_core.roles import RoleGroup, Room, host_spec
from roll_core.roles.desk import RoleClosed

WAIT_S = 100.0


def ask(group, text, **options):
    options = {"lane": "work", "bound_s": 60.0, "what": f"'{text}'", **options}
    return group.ask(text.encode(), **options)


def answers(futures):
    return [future.result(WAIT_S).value.decode() for future in futures]


def pids(executor):
    return {
        worker.index: worker.pid
        for worker in executor.health()
        if worker.role == "toys" and worker.is_alive and worker.pid
    }


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def test_many_requests_are_spread_over_the_hosts_and_answered_once(executor, open_role):
    group = open_role(executor)
    texts = [f"echo:{number}" for number in range(300)]
    assert answers([ask(group, text) for text in texts]) == texts
    assert set(answers([ask(group, "pid") for _ in range(40)])) == {str(pid) for pid in pids(executor).values()}
    metrics = group.take_metrics()
    assert metrics["answered/0"] + metrics["answered/1"] == 340
    assert min(metrics["answered/0"], metrics["answered/1"]) > 0
    assert metrics["queue_max"] > 0 and metrics["hosts_live"] == 2 and metrics["hosts_lost"] == 0
    until(lambda: group.vitals() == {"served": 340})
    assert group.take_metrics()["answered/0"] == 0


def test_what_a_lost_host_had_is_done_by_others_and_the_host_comes_back(executor, open_role):
    group = open_role(executor)
    asked = [ask(group, "sleep:1.5") for _ in range(8)]
    lost = pids(executor)[0]
    time.sleep(0.3)
    os.kill(lost, signal.SIGKILL)
    assert answers(asked) == ["sleep:1.5"] * 8
    until(lambda: group.take_metrics()["hosts_restarted"] == 1)
    metrics = group.take_metrics()
    assert (metrics["hosts_lost"], metrics["requests_retried"], metrics["requests_lost"]) == (1, 4, 0)
    assert pids(executor)[0] != lost
    assert len(set(answers([ask(group, "pid") for _ in range(40)]))) == 2


def test_a_request_that_ends_its_hosts_fails_after_the_second_and_nothing_else_does(local, open_role):
    group = open_role(local)
    poison = ask(group, "exit")
    texts = [f"echo:{number}" for number in range(50)]
    others = [ask(group, text) for text in texts]
    with pytest.raises(WorkerLost, match=r"'exit': its host was lost \(2 times\)"):
        poison.result(WAIT_S)
    assert answers(others) == texts
    until(lambda: group.take_metrics()["hosts_restarted"] == 2)
    metrics = group.take_metrics()
    assert (metrics["hosts_lost"], metrics["requests_lost"]) == (2, 1)


def test_an_error_of_the_handler_belongs_to_its_request(local, open_role):
    group = open_role(local)
    asked = [ask(group, text) for text in ("raise:that", "echo:1", "leave:3")]
    with pytest.raises(ComponentError, match="'raise:that': ValueError: that"):
        asked[0].result(WAIT_S)
    with pytest.raises(ComponentError, match="'leave:3': SystemExit: 3"):
        asked[2].result(WAIT_S)
    assert answers([asked[1]]) == ["echo:1"]
    assert group.take_metrics()["hosts_lost"] == 0


@pytest.mark.parametrize("stop", ["block", "stopped"])
def test_a_host_that_stands_still_is_replaced(local, open_role, stop, caplog):
    group = open_role(local, hosts=1, limits=replace(QUICK, silence_s=2.0))
    if stop == "block":
        with pytest.raises(WorkerLost, match="no answer for"):
            ask(group, "block:1000", retries=0).result(WAIT_S)
        assert "in serve" in caplog.text and "time.sleep(" not in caplog.text  # the stack says where it stood
    else:
        asked = ask(group, "sleep:1")
        os.kill(pids(local)[0], signal.SIGSTOP)
        assert answers([asked]) == ["sleep:1"]
    assert answers([ask(group, "echo:1")]) == ["echo:1"]
    assert group.take_metrics()["hosts_lost"] > 0


def test_a_request_over_its_bound_fails_and_its_host_is_replaced(local, open_role):
    group = open_role(local, hosts=1)
    asked = ask(group, "sleep:1000", bound_s=0.5)
    other = ask(group, "sleep:3")
    with pytest.raises(Stuck, match=r"toys\[0\]: 'sleep:1000'; no answer for .* s, which is over its bound"):
        asked.result(WAIT_S)
    assert answers([other]) == ["sleep:3"]
    metrics = group.take_metrics()
    assert (metrics["hosts_lost"], metrics["requests_retried"], metrics["requests_lost"]) == (1, 1, 0)


def test_a_place_keeps_its_memory_until_its_host_is_lost(local, open_role):
    group = open_role(local)
    first = ask(group, "add:1").result(WAIT_S)
    others = [ask(group, f"add:{n}", place=first.place) for n in (1, 1, 1)]
    assert answers(others) == ["2", "3", "4"]
    waiting = ask(group, "sleep:1000", place=first.place)
    os.kill(pids(local)[first.place.index], signal.SIGKILL)
    with pytest.raises(WorkerLost, match="its host was lost"):
        waiting.result(WAIT_S)
    until(lambda: group.take_metrics()["hosts_restarted"] == 1)
    with pytest.raises(WorkerLost, match="was replaced"):
        ask(group, "add:1", place=first.place).result(WAIT_S)
    assert ask(group, "add:1").result(WAIT_S).place != first.place


def test_a_request_that_may_not_be_served_twice_is_not(local, open_role):
    group = open_role(local)
    asked = ask(group, "exit_after:0.2", retries=0)
    with pytest.raises(WorkerLost, match="its host was lost: toys"):
        asked.result(WAIT_S)
    assert group.take_metrics()["hosts_lost"] == 1


def test_a_request_that_is_given_up_makes_room(local, open_role):
    group = open_role(local, hosts=1, room=1)
    early, waiting = ask(group, "sleep:1000"), ask(group, "sleep:1000")
    assert early.cancel() and waiting.cancel()  # the first perhaps before it has begun
    running = ask(group, "sleep:1000")
    until(lambda: group.vitals().get("served", 0) > 0)
    assert running.cancel()
    assert int(answers([ask(group, "given_up")])[0]) > 0


def test_without_a_host_and_no_way_to_start_one_everything_ends_with_the_reason(local, open_role, tmp_path):
    marker = tmp_path / "broken"
    group = open_role(local, room=1, fail_when=str(marker))
    asked = [ask(group, "sleep:1000") for _ in range(5)]
    marker.touch()
    for pid in pids(local).values():
        os.kill(pid, signal.SIGKILL)
    for future in asked:
        with pytest.raises(WorkerLost, match=r"no host of role 'toys' is left.*cannot be built any more"):
            future.result(WAIT_S)
    with pytest.raises(WorkerLost, match="none could be put in its place"):
        group.check()
    with pytest.raises(WorkerLost):
        ask(group, "echo:1")
    metrics = group.take_metrics()
    assert (metrics["hosts_live"], metrics["hosts_lost"], metrics["requests_lost"]) == (0, 2, 5)


def test_a_host_that_does_not_come_up_is_tried_again_while_others_serve(local, open_role, tmp_path, caplog):
    marker = tmp_path / "broken"
    group = open_role(local, fail_when=str(marker), limits=replace(QUICK, failures=1))
    marker.touch()
    os.kill(pids(local)[0], signal.SIGKILL)
    until(lambda: caplog.text.count("could not be replaced") > 1)
    assert answers([ask(group, "echo:1")]) == ["echo:1"]
    marker.unlink()
    until(lambda: group.take_metrics()["hosts_live"] == 2)


@pytest.mark.parametrize("is_restarting", [False, True])
def test_closing_ends_requests_and_hosts_at_once(local, open_role, is_restarting):
    group = open_role(local)
    asked = [ask(group, "sleep:1000") for _ in range(20)]
    before = pids(local)
    if is_restarting:
        os.kill(before[0], signal.SIGKILL)
        until(lambda: group.take_metrics()["hosts_lost"] == 1)
    begun = time.monotonic()
    group.close()
    group.close()
    assert time.monotonic() - begun < 60
    for future in asked:
        with pytest.raises(RoleClosed, match="role 'toys' was closed"):
            future.result(0)
    with pytest.raises(RoleClosed):
        ask(group, "echo:1")
    assert not pids(local) and not any(is_running(pid) for pid in before.values())


def test_a_handler_that_cannot_be_made_stops_the_start(local, tmp_path):
    marker = tmp_path / "broken"
    marker.touch()
    spec = host_spec("toys", "role_handlers:open_toy", 2, {"fail_when": str(marker)}, cpus=0.5)
    group = RoleGroup(local, spec, rooms={"work": Room.of(1)}, limits=QUICK)
    with pytest.raises(ValueError, match="cannot be built any more"):
        group.start()
    group.close()
    assert not pids(local)
