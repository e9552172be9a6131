"""The kept tables of system call numbers against the kernel's headers, where these are installed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from roll_core.sandbox.kernel.syscalls import ARCHITECTURES, this_architecture
from roll_core.sandbox.types import SandboxUnavailableError

X86_64_HEADERS = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")]
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")
ONLY_32_BIT = {"fcntl64", "llseek", "mmap2", "sendfile64", "stat64", "lstat64", "fstat64", "fstatat64", "statfs64"}
ONLY_32_BIT |= {"fstatfs64", "truncate64", "ftruncate64", "fadvise64_64", "sync_file_range2", "syscalls"}


def defined(header: Path) -> dict[str, int]:
    """Names and numbers; the generic header gives some numbers to two names, the second for 32-bit systems."""
    text = header.read_text()
    direct = dict(re.findall(r"^#define (__NR(?:3264)?_\w+)\s+(\d+)", text, re.MULTILINE))
    found = {name.removeprefix("__NR_"): int(n) for name, n in direct.items() if name.startswith("__NR_")}
    for name, other in re.findall(r"^#define __NR_(\w+)\s+(__NR3264_\w+)", text, re.MULTILINE):
        if other in direct:
            found[name] = int(direct[other])
    return {name: n for name, n in found.items() if name not in ONLY_32_BIT and not name.endswith("time64")}


def test_x86_64_agrees_with_the_kernel_headers() -> None:
    header = next((path for path in X86_64_HEADERS if path.exists()), None)
    if header is None:
        pytest.skip("the kernel headers of x86_64 are not installed")
    ours = ARCHITECTURES["x86_64"].numbers
    theirs = defined(header)
    assert len(theirs) > 300
    assert {name: ours.get(name) for name in theirs} == theirs


def test_aarch64_agrees_with_the_generic_kernel_header() -> None:
    if not GENERIC_HEADER.exists():
        pytest.skip("the kernel headers are not installed")
    ours = ARCHITECTURES["aarch64"].numbers
    theirs = {name: number for name, number in defined(GENERIC_HEADER).items() if name != "arch_specific_syscall"}
    assert len(theirs) > 280
    assert {name: ours.get(name) for name in theirs} == theirs


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_number_is_given_twice(name: str) -> None:
    numbers = ARCHITECTURES[name].numbers
    assert len(set(numbers.values())) == len(numbers)


def test_recent_numbers_are_the_same_everywhere() -> None:
    recent = [{n: v for n, v in a.numbers.items() if v >= 424} for a in ARCHITECTURES.values()]
    assert recent[0] == recent[1]


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    this_architecture.cache_clear()
    real = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*real[:4], "riscv64")))
    with pytest.raises(SandboxUnavailableError, match="x86_64 or aarch64"):
        this_architecture()
    this_architecture.cache_clear()
