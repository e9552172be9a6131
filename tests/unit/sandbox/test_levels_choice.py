"""Which level is taken, and what happens where none holds."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.sandbox import LEVELS, Level, Sandbox, SandboxError, SandboxUnavailableError, probe
from roll_core.sandbox import pool as pool_module
from roll_core.sandbox.selftest import attack
from roll_core.sandbox.settings import LEVEL_VARIABLE, Settings


def refuse(*levels: Level) -> Callable[[object, object], None]:
    """A self-test that some levels do not pass."""

    def attack_some(channel: object, config: object) -> None:
        if config.level in levels:
            raise SandboxError(f"{config.level} leaks")
        attack(channel, config)

    return attack_some


def test_auto_takes_the_strongest_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    holding = [level for level, reason in probe().items() if reason is None]
    assert holding
    with Sandbox() as sandbox:
        assert sandbox.level == holding[0]
        assert set(sandbox.refused) == set(LEVELS[: LEVELS.index(holding[0])])
    monkeypatch.setattr(pool_module, "attack", refuse("ns"))
    with Sandbox() as sandbox:
        assert sandbox.level != "ns"
        assert sandbox.refused["ns"] == "ns leaks"


def test_where_none_holds_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "attack", refuse(*LEVELS))
    with pytest.raises(SandboxUnavailableError) as caught:
        Sandbox()
    for level in LEVELS:
        assert f"{level}: {level} leaks" in str(caught.value)
    assert probe() == {level: f"{level} leaks" for level in LEVELS}


def test_the_environment_forces_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "seccomp")
    assert Settings().levels() == ("seccomp",)
    assert Settings(level="ns").levels() == ("ns",)
    monkeypatch.setenv(LEVEL_VARIABLE, "")
    assert Settings().levels() == LEVELS
    monkeypatch.setenv(LEVEL_VARIABLE, "none")
    with pytest.raises(ValueError, match=f"{LEVEL_VARIABLE} is 'none'"):
        Settings().levels()


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="no sandbox level 'docker'"):
        Sandbox("docker")
    with pytest.raises(ValueError, match="at least one zygote"):
        Sandbox(zygotes=0)
    with pytest.raises(ValueError, match="no folder '/nowhere'"):
        Sandbox(packages=["/nowhere"])


def test_an_interpreter_that_does_not_run_is_named() -> None:
    with pytest.raises(SandboxUnavailableError, match="/nowhere/python"):
        Sandbox(python="/nowhere/python")


def test_an_interpreter_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("roll_core.sandbox.paths._OLDEST_PYTHON", [4, 0])
    other = tmp_path / "python"
    other.symlink_to(os.path.realpath(sys.executable))
    with pytest.raises(SandboxUnavailableError, match=r"need Python .* is 3\."):
        Sandbox(python=str(other))


def test_a_module_that_does_not_import_is_named() -> None:
    with pytest.raises(SandboxUnavailableError, match="no_such_module"):
        Sandbox("seccomp", preload=["no_such_module"])


def test_processes_need_a_pid_namespace() -> None:
    with pytest.raises(SandboxUnavailableError, match="pid namespace"):
        Sandbox("seccomp", allow_processes=True)


def test_attacks_of_the_self_test_work_without_a_jail() -> None:
    """Each attack outside the jail, in a process of its own: one that fails there too would test nothing.

    None of them does harm: those with consequences ask for what is not there, and are answered all the same.
    """
    attacks = importlib.import_module("roll_core.sandbox.zygote.attacks")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        secret = os.path.join(folder, "secret")
        with open(secret, "w") as file:
            file.write("x")
        receiver.bind(f"\0self-test-{os.getpid()}")
        plants = {"secret": secret, "abstract": f"self-test-{os.getpid()}", "pid": os.getpid(), "descriptors": 256}
        names = list(attacks.ATTACKS) + list(attacks.PROCESS_ATTACKS)
        succeeded = succeeding_outside(names, plants)
    privileged = {
        "mount",
        "enter a namespace",
        "use bpf",
        "use perf events",
        "become root",
        "raise a limit",
        "trace the host",
    }
    depends = {
        "use io_uring",
        "use userfaultfd",
        "use keys",
        "make a user namespace",
        "write outside the scratch folder",
    }
    assert set(names) - succeeded <= privileged | depends, set(names) - succeeded


OUTSIDE = """
import json, os, sys
from roll_core.sandbox.zygote import attacks
names, plants = json.loads(sys.argv[1])
every = attacks.ATTACKS | attacks.PROCESS_ATTACKS
os.dup2(os.open('/dev/null', os.O_RDONLY), 77)
for name in names:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        broke = attacks._succeeds(every[name], plants)  # executing another program leaves status 0
        os._exit(0 if broke else 99)
    if os.waitpid(pid, 0)[1] != 99 << 8:
        print(name, flush=True)
"""


def succeeding_outside(names: list[str], plants: dict[str, object]) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", OUTSIDE, json.dumps([names, plants])], capture_output=True, timeout=60, check=True
    )
    return set(ran.stdout.decode().splitlines())


def test_a_program_reads_packages_that_it_is_given(open_level: Callable[[Level], Sandbox]) -> None:
    open_level("ns")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "given_package.py"), "w") as file:
            file.write("x = 42\n")
        for level in LEVELS:
            with Sandbox(level, packages=[folder], preload=["given_package"]) as sandbox:
                assert sandbox.run("import given_package\nprint(given_package.x)").stdout == b"42\n"
