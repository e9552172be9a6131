"""Processes seen from outside."""

from __future__ import annotations

import subprocess
import sys
import time

from roll_core.cluster.processes import is_running, kill_tree

PARENT = "import subprocess, sys; print(subprocess.Popen(['sleep', '36002']).pid, flush=True); sys.stdin.read()"


def start_family() -> tuple[subprocess.Popen[bytes], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    return parent, int(parent.stdout.readline())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


def test_a_leader_is_killed_with_its_group() -> None:
    parent, child = start_family()
    with parent:
        kill_tree(parent.pid)
        assert parent.wait(10) == -9
    assert gone(child)


def test_a_group_is_killed_whose_leader_has_ended_before() -> None:
    parent, child = start_family()
    with parent:
        parent.kill()
        parent.wait()
        assert is_running(child)
        kill_tree(parent.pid)
        assert gone(child)


def test_a_process_that_leads_no_group_is_killed_alone() -> None:
    with subprocess.Popen(["sleep", "36002"]) as process:
        kill_tree(process.pid)
        assert process.wait(10) == -9
