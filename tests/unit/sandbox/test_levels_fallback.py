"""Hosts that withhold what a level needs, as containers do: the next level is taken, or the sandbox refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from roll_core.sandbox import LEVELS, Level, probe

SCRIPT = """
import json, os, sys
from roll_core.sandbox import Sandbox, SandboxUnavailableError, probe
from roll_core.sandbox.kernel import libc
from roll_core.sandbox.kernel.bpf import assemble, branch, decide_by_number, give, load, IF_ANY_BIT, IF_EQUAL
from roll_core.sandbox.kernel.filter import ALLOW, NEW_NAMESPACE, error
from roll_core.sandbox.kernel.syscalls import this_architecture

numbers = this_architecture().numbers
withheld = {numbers[name] for name in json.loads(sys.argv[1]) if name in numbers}
verdicts = [error(1) if number in withheld else ALLOW for number in range(500)]
clone = [load(16), branch(IF_ANY_BIT, NEW_NAMESPACE, 0, 1), give(error(1)), give(ALLOW)]
program = [load(0), branch(IF_EQUAL, numbers["clone"], 0, len(clone)), *clone, *decide_by_number(verdicts, ALLOW)]
if withheld:
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.install_filter(assemble(program).code)
try:
    with Sandbox() as sandbox:
        said = sandbox.run("import difflib\\nprint(6 * 7)").stdout.decode()
        print(json.dumps([sandbox.level, said, dict(sandbox.refused)]))
except SandboxUnavailableError as error:
    print(json.dumps([None, str(error), {}]))
"""
NAMESPACES = [
    "unshare",
    "setns",
    "mount",
    "umount2",
    "pivot_root",
    "open_tree",
    "move_mount",
    "mount_setattr",
]
LANDLOCK = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]


def open_without(withheld: list[str]) -> tuple[Level | None, str, dict[Level, str]]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(withheld)], capture_output=True, timeout=120, check=True
    )
    level, said, refused = json.loads(ran.stdout)
    return level, said, refused


@pytest.fixture(scope="module")
def refused() -> dict[Level, str | None]:
    return probe()


@pytest.mark.parametrize(
    ("withheld", "level"),
    [
        (NAMESPACES, "landlock"),
        (["pivot_root"], "landlock"),
        (["mount_setattr"], "landlock"),
        (NAMESPACES + LANDLOCK, "seccomp"),
    ],
    ids=["no namespaces", "no pivot_root", "no mount_setattr", "no namespaces, no Landlock"],
)
def test_the_next_level_is_taken(withheld: list[str], level: Level, refused: dict[Level, str | None]) -> None:
    if (reason := refused[level]) is not None:
        pytest.skip(f"this machine has no {level} level: {reason}")
    taken, said, reasons = open_without(withheld)
    assert (taken, said) == (level, "42\n")
    assert list(reasons) == list(LEVELS[: LEVELS.index(level)])
    assert "Operation not permitted" in reasons["ns"]


@pytest.mark.parametrize("withheld", [["seccomp"], ["close_range"], ["pidfd_open"]])
def test_without_the_essentials_nothing_runs(withheld: list[str]) -> None:
    taken, said, _ = open_without(withheld)
    assert taken is None
    for level in LEVELS:
        assert f"{level}: " in said
    assert said.count("Operation not permitted") == len(LEVELS)
