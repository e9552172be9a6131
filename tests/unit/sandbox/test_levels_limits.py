"""How runs end: every limit, at every level."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from roll_core.sandbox import Ending, Limits, Sandbox

LIMITS = Limits(cpu_s=0.5, wall_s=1.0, memory_mb=128, output_kb=64, processes=32, disk_mb=4)
SHORT = {Ending.CPU: replace(LIMITS, cpu_s=0.25, wall_s=2.0), Ending.WALL: replace(LIMITS, wall_s=0.4)}
"""For programs that have nothing to do before they reach their limit."""
CAP = LIMITS.output_kb << 10

ENDINGS = {
    "a clean end": ("print(1)", Ending.EXITED, 0),
    "an exit status": ("raise SystemExit(3)", Ending.EXITED, 3),
    "an exception": ("1 / 0", Ending.EXITED, 1),
    "endless recursion": ("def f(n): return f(n + 1)\nf(0)", Ending.EXITED, 1),
    "a full output": (f"import sys\nsys.stdout.write('x' * {CAP})", Ending.EXITED, 0),
    "one byte too much": (f"import sys\nsys.stdout.write('x' * ({CAP} + 1))", Ending.OUTPUT, None),
    "a flood of lines": ("for _ in range(10**7): print('x' * 1000)", Ending.OUTPUT, None),
    "a flood in one piece": ("import os\nos.write(1, b'x' * (20 << 20))", Ending.OUTPUT, None),
    "a flood of errors": ("import sys\nfor _ in range(10**7): print('x' * 1000, file=sys.stderr)", Ending.OUTPUT, None),
    "a flood that ignores refusals": (
        "import os\nwhile True:\n  try: os.write(1, b'x' * 10**5)\n  except OSError: os._exit(0)",
        Ending.OUTPUT,
        None,
    ),
    "an output written far away": ("import os\nos.lseek(1, 1 << 40, 0)", Ending.OUTPUT, None),
    "memory at once": ("bytearray(4 << 30)", Ending.MEMORY, 1),
    "memory bit by bit": ("a = []\nwhile True: a.append(bytearray(1 << 20))", Ending.MEMORY, None),
    "memory for a moment": ("a = bytearray(200 << 20)\ndel a\nprint(1)", Ending.MEMORY, None),
    "shared memory": (
        "import mmap\nm = mmap.mmap(-1, 200 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1",
        Ending.MEMORY,
        None,
    ),
    "shared memory at once": ("import mmap\nmmap.mmap(-1, 4 << 30)", Ending.MEMORY, 1),
    "a thread with a large stack": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 29)\n"
        "t = threading.Thread(target=lambda: print('done'))\nt.start()\nt.join()",
        Ending.EXITED,
        0,
    ),
    "caught lack of memory": ("try: bytearray(4 << 30)\nexcept MemoryError: print('caught')", Ending.EXITED, 0),
    "a busy loop": ("while True: pass", Ending.CPU, None),
    "a long call into C": ("print(10 ** 10**9 % 7)", Ending.CPU, None),
    "busy threads": (
        "import threading\ndef f():\n  while True: pass\nfor _ in range(4): threading.Thread(target=f).start()",
        Ending.CPU,
        None,
    ),
    "a sleeper": ("import time\ntime.sleep(60)", Ending.WALL, None),
    "a sleeper that ignores signals": (
        "import signal, time\n"
        "for s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(60)",
        Ending.WALL,
        None,
    ),
    "a deadlock": ("import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", Ending.WALL, None),
    "a crash": ("import ctypes\nctypes.string_at(0)", Ending.SIGNALLED, None),
    "an abort": ("import os\nos.abort()", Ending.SIGNALLED, None),
    "too many threads": (
        (
            "import threading, time\n"
            "for _ in range(100): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
        ),
        Ending.EXITED,
        1,
    ),
    "too many descriptors": ("import os\nwhile True: os.dup(1)", Ending.EXITED, 1),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending(sandbox: Sandbox, name: str) -> None:
    source, ending, exit_code = ENDINGS[name]
    began = time.monotonic()
    result = sandbox.run(source, limits=SHORT.get(ending, LIMITS))
    assert result.ending is ending, result
    if exit_code is not None:
        assert result.exit_code == exit_code
    assert len(result.stdout) <= CAP
    assert len(result.stderr) <= CAP
    assert result.level == sandbox.level
    assert result.is_clean is (ending is Ending.EXITED and exit_code == 0)
    assert (result.exit_code is None) is (result.signal is not None)
    assert time.monotonic() - began < 10


def test_a_full_output_comes_back_whole(sandbox: Sandbox) -> None:
    result = sandbox.run(
        f"import sys\nsys.stdout.write('ab' * {CAP // 2})\nsys.stderr.write('cd' * {CAP // 2})", limits=LIMITS
    )
    assert (result.stdout, result.stderr) == (b"ab" * (CAP // 2), b"cd" * (CAP // 2))
    assert result.is_clean


def test_the_result_file_has_an_end(sandbox: Sandbox) -> None:
    flood = "import os\nwhile True:\n  try: os.write(3, b'x' * (1 << 20))\n  except OSError: break"
    result = sandbox.run(flood, limits=LIMITS)
    assert result.ending is Ending.EXITED
    assert result.result == b"x" * (16 << 20)


def test_a_stopped_program_ends(sandbox: Sandbox) -> None:
    result = sandbox.run(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('on')", limits=SHORT[Ending.WALL]
    )
    expected = (Ending.EXITED, b"on\n") if sandbox.level == "ns" else (Ending.WALL, b"")
    assert (result.ending, result.stdout) == expected


def test_cpu_time_decides_and_not_the_wall_clock(sandbox: Sandbox) -> None:
    result = sandbox.run("while True: pass", limits=Limits(cpu_s=0.3, wall_s=30.0))
    assert result.ending is Ending.CPU
    assert 0.3 <= result.cpu_s < 1.0


def test_the_scratch_folder_is_limited(ns: Sandbox) -> None:
    fill = "with open('big', 'wb') as f:\n  for _ in range(100): f.write(bytes(1 << 20))"
    assert ns.run(fill, limits=LIMITS).ending is Ending.DISK
    assert ns.run("for i in range(10**6): open(str(i), 'w').close()", limits=Limits(disk_mb=1)).ending is Ending.DISK
    fits = "with open('big', 'wb') as f: f.write(bytes(3 << 20))\nimport os\nprint(os.path.getsize('big'))"
    assert ns.run(fits, limits=LIMITS).stdout == b"3145728\n"


def test_the_scratch_folder_is_fresh(ns: Sandbox) -> None:
    look = (
        "import os, tempfile\nprint(os.listdir('.'), os.listdir(tempfile.gettempdir()))\nopen('left', 'w').write('x')"
    )
    assert ns.run(look).stdout == ns.run(look).stdout == b"[] []\n"


def test_no_core_file_is_left(sandbox: Sandbox) -> None:
    before = set(os.listdir("/"))
    assert sandbox.run("import os\nos.abort()", limits=LIMITS).ending is Ending.SIGNALLED
    assert set(os.listdir("/")) == before


@pytest.mark.parametrize("source", ["int80", "x32"])
def test_other_ways_into_the_kernel_are_deadly(sandbox: Sandbox, source: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("these ways exist on x86_64 only")
    int80 = (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())"
    )
    x32 = "import ctypes\nprint(ctypes.CDLL(None).syscall(0x40000000 | 39))"
    result = sandbox.run({"int80": int80, "x32": x32}[source], limits=LIMITS)
    assert (result.ending, result.signal) == (Ending.SIGNALLED, 31)


def test_limits_hold_for_huge_sources_too(sandbox: Sandbox) -> None:
    result = sandbox.run("x = '" + "y" * (30 << 20) + "'\nprint(len(x))", limits=LIMITS)
    assert result.ending in (Ending.MEMORY, Ending.EXITED)
    assert not result.is_clean or result.stdout == b"31457280\n"
