"""Programs that may have processes: they work, their limits count for all together, none is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from roll_core.sandbox import Ending, Limits, RunResult, Sandbox, SandboxUnavailableError

LIMITS = Limits(cpu_s=0.6, wall_s=2.5, memory_mb=192, output_kb=64, processes=24, disk_mb=4)


@pytest.fixture(scope="module")
def family() -> Iterator[Sandbox]:
    try:
        sandbox = Sandbox("ns", allow_processes=True)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    with sandbox:
        yield sandbox


def run(family: Sandbox, source: str, limits: Limits = LIMITS) -> RunResult:
    return family.run(source, limits=limits)


HONEST = {
    "a command": (
        "import subprocess\nprint(subprocess.run(['/bin/echo', 'x'], capture_output=True).stdout)",
        "b'x\\n'",
    ),
    "a shell": ("import os\nprint(os.WEXITSTATUS(os.system('exit 3')))", "3"),
    "the interpreter": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)",
        "b'5\\n'",
    ),
    "a pool": (
        "from multiprocessing import Pool\ndef f(x): return x * x\nwith Pool(2) as p: print(p.map(f, [1, 2]))",
        "[1, 4]",
    ),
    "an executor": (
        "from concurrent.futures import ProcessPoolExecutor\ndef f(x): return x * x\n"
        "with ProcessPoolExecutor(2) as p: print(list(p.map(f, [3])))",
        "[9]",
    ),
    "shared memory by name": (
        "from multiprocessing import shared_memory\ns = shared_memory.SharedMemory(create=True, size=10)\n"
        "s.buf[0] = 7\nprint(s.buf[0])\ns.close()\ns.unlink()",
        "7",
    ),
    "zombies": ("import os\nfor _ in range(15):\n  if os.fork() == 0: os._exit(0)\nprint('ok')", "ok"),
    "signals between them": (
        "import os, signal\np = os.fork()\nif p == 0: signal.pause()\n"
        "os.kill(p, 15)\nprint(os.WTERMSIG(os.waitpid(p, 0)[1]))",
        "15",
    ),
    "memory shared by forks": (
        "import os, time\na = b'x' * (80 << 20)\n"
        "for _ in range(4):\n  if os.fork() == 0: time.sleep(0.2); os._exit(0)\ntime.sleep(0.3)\nprint('ok')",
        "ok",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_program(family: Sandbox, name: str) -> None:
    source, expected = HONEST[name]
    result = run(family, source, Limits(memory_mb=256))
    assert result.stdout.decode().strip() == expected, result


EXCESSIVE = {
    "memory of all together": (
        "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n"
        "    a = bytearray(80 << 20); time.sleep(9)\ntime.sleep(9)",
        {Ending.MEMORY},
    ),
    "CPU time of all together": (
        "import os\nfor _ in range(3):\n  if os.fork() == 0:\n    while True: pass\nos.wait()",
        {Ending.CPU},
    ),
    "CPU time of grandchildren": (
        "import os, time\nif os.fork() == 0:\n  if os.fork() == 0:\n    while True: pass\n  os._exit(0)\ntime.sleep(9)",
        {Ending.CPU},
    ),
    "too many processes": (
        "import os, time\nfor _ in range(100):\n  if os.fork() == 0: time.sleep(9)\nprint('all')",
        {Ending.EXITED},
    ),
    "a fork bomb": ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", {Ending.CPU, Ending.MEMORY}),
    "a stopped child": (
        "import os, signal\np = os.fork()\nif p == 0: os.kill(os.getpid(), signal.SIGSTOP)\nos.waitpid(p, 0)",
        {Ending.WALL},
    ),
    "a flood by a child": ("import subprocess\nsubprocess.run(['/usr/bin/yes'])", {Ending.OUTPUT}),
}


@pytest.mark.parametrize("name", EXCESSIVE)
def test_excess_ends(family: Sandbox, name: str) -> None:
    source, endings = EXCESSIVE[name]
    result = run(family, source)
    assert result.ending in endings, result
    assert b"all" not in result.stdout


ATTACKS = {
    "setuid program": "import subprocess\nassert subprocess.run(['/bin/su', '-c', 'true']).returncode == 0",
    "unshare": "import subprocess\nassert subprocess.run(['/usr/bin/unshare', '-Ur', 'true']).returncode == 0",
    "running a written file": (
        "import os\nopen('x', 'w').write('#!/bin/sh\\n')\nos.chmod('x', 0o755)\nos.execv('./x', ['x'])"
    ),
    "killing the zygote": "import os\nassert os.getppid() > 0\nos.kill(os.getppid(), 9)",
    "a socket in a child": (
        "import subprocess, sys\n"
        "assert subprocess.run([sys.executable, '-c', 'import socket; socket.socket()']).returncode == 0"
    ),
    "a namespace in a child": (
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-c', "
        "'import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0']).returncode == 0"
    ),
    "its own init by /proc": "open('/proc/1/environ')",
    "the result file in a child": (
        "import subprocess\nassert subprocess.run(['/bin/sh', '-c', 'echo x >&3']).returncode == 0"
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_fails(family: Sandbox, name: str) -> None:
    result = run(family, ATTACKS[name], Limits())
    assert result.exit_code == 1, result
    assert result.result == b""


def test_a_name_that_is_no_text_harms_nobody(family: Sandbox) -> None:
    zygote = family._pool.shared()
    other = family.start({"mode": "program", "source": "import time\ntime.sleep(0.5)\nprint('ok')"}, limits=LIMITS)
    renamed = (
        "import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'\\xff) 1 (\\xfe', 0, 0, 0)\n"
        "if os.fork() == 0: time.sleep(9)\ntime.sleep(0.3)\nprint('renamed')"
    )
    assert run(family, renamed).stdout == b"renamed\n"
    assert other.wait().stdout == b"ok\n"
    assert family._pool.shared() is zygote


def test_no_process_is_left(family: Sandbox) -> None:
    mark = f"sandbox-test-{os.getpid()}"
    daemon = (
        "import os, sys, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        f"    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "  os._exit(0)\n"
        "time.sleep(0.1)\nprint('ok')"
    )
    assert run(family, daemon).stdout == b"ok\n"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in command_of(pid)]


def command_of(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def test_a_run_ends_when_its_first_process_ends(family: Sandbox) -> None:
    began = time.monotonic()
    assert run(family, "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('ok')").stdout == b"ok\n"
    assert time.monotonic() - began < 5
