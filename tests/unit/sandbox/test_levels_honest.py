"""Honest programs that must work in the jail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from roll_core.sandbox import Level, Limits, Sandbox

EVERYWHERE = {
    "arithmetic": ("print(2 ** 100)", "1267650600228229401496703205376"),
    "huge integers": ("print(len(str(10 ** 5000)))", "5001"),
    "decimal": ("from decimal import *\ngetcontext().prec = 50\nprint(Decimal(1) / 7)", "0." + "142857" * 8 + "14"),
    "fractions": ("from fractions import Fraction\nprint(Fraction(1, 3) + 1)", "4/3"),
    "standard input": ("import sys\nprint(sum(map(int, sys.stdin.read().split())))", "6"),
    "input in bytes": ("import sys\nprint(len(sys.stdin.buffer.read()))", "6"),
    "input by descriptor": ("import os\nprint(os.read(0, 100))", "b'1 2\\n3\\n'"),
    "input by another file object": ("print(open(0).read().split())", "['1', '2', '3']"),
    "output by another file object": ("import os\nwith os.fdopen(1, 'w') as f: f.write('x')", "x"),
    "threads": (
        "import threading\nt = [threading.Thread(target=lambda: None) for _ in range(20)]\n"
        "[x.start() for x in t]\n[x.join() for x in t]\nprint('done')",
        "done",
    ),
    "thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as p: print(sum(p.map(lambda x: x * x, range(100))))",
        "328350",
    ),
    "a large stack in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 28)\n"
        "def f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(10**5)))\nt.start()\nt.join()",
        "100000",
    ),
    "a stack without limit": (
        "import resource, sys\nfrom functools import lru_cache\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "sys.setrecursionlimit(10**9)\n@lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(150_000))",
        "150000",
    ),
    "a stack as large as may be": (
        "import resource\n_, hard = resource.getrlimit(resource.RLIMIT_STACK)\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 29, -1))\nprint(hard >= 256 << 20)",
        "True",
    ),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50000))",
        "50000",
    ),
    "deep recursion through C": (
        "import sys\nsys.setrecursionlimit(10**6)\nfrom functools import lru_cache\n"
        "@lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20000))",
        "20000",
    ),
    "asyncio": (
        "import asyncio\nasync def f():\n  await asyncio.sleep(0.001)\n  return await asyncio.to_thread(lambda: 5)\n"
        "print(asyncio.run(f()))",
        "5",
    ),
    "a socket pair": ("import socket\na, b = socket.socketpair()\na.sendall(b'x')\nprint(b.recv(1))", "b'x'"),
    "a pipe": ("import os\nr, w = os.pipe()\nos.write(w, b'x')\nprint(os.read(r, 1))", "b'x'"),
    "select": ("import os, select\nr, w = os.pipe()\nprint(select.select([r], [w], [], 1)[1] == [w])", "True"),
    "alarms": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('alarm'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()",
        "alarm",
    ),
    "anonymous memory": ("import mmap\nm = mmap.mmap(-1, 4096)\nm[:1] = b'x'\nprint(m[:1])", "b'x'"),
    "ctypes": ("import ctypes\nprint(ctypes.CDLL(None).abs(-3))", "3"),
    "clocks of threads": (
        "import threading, time\n"
        "clocks = [time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID, time.CLOCK_BOOTTIME]\n"
        "clocks.append(time.pthread_getcpuclockid(threading.get_ident()))\n"
        "print(all(time.clock_gettime(clock) >= 0 < time.clock_getres(clock) for clock in clocks))",
        "True",
    ),
    "what it may ask about itself": (
        "import os\nprint(os.getsid(0) >= 0, os.getpgid(os.getpid()) >= 0, os.sched_getscheduler(0), "
        "os.sched_getaffinity(os.getpid()) == os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))",
        "True True 0 True 0",
    ),
    "clocks": ("import time\nprint(time.time() > 0 < time.perf_counter(), time.process_time() >= 0)", "True True"),
    "randomness": ("import os, random, secrets\nprint(len(os.urandom(4)), len(secrets.token_bytes(4)))", "4 4"),
    "hashes": ("import hashlib\nprint(hashlib.sha256(b'').hexdigest()[:8])", "e3b0c442"),
    "compression": ("import bz2, lzma, zlib\nprint(zlib.decompress(zlib.compress(b'x')))", "b'x'"),
    "a data base in memory": (
        "import sqlite3\nprint(sqlite3.connect(':memory:').execute('select 1').fetchone())",
        "(1,)",
    ),
    "dates": ("import datetime\nprint(datetime.date(2024, 2, 29).isoformat())", "2024-02-29"),
    "data classes": ("from dataclasses import dataclass\n@dataclass\nclass P: x: int\nprint(P(1))", "P(x=1)"),
    "rare modules": ("import difflib, graphlib, textwrap, zoneinfo, xml.etree.ElementTree, unittest\nprint(1)", "1"),
    "limits of its own": (
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))\nprint(1)",
        "1",
    ),
    "nice": ("import os\nprint(os.nice(2))", "2"),
    "processors": ("import os\nprint(os.cpu_count() > 0, len(os.sched_getaffinity(0)) > 0)", "True True"),
    "no environment": (
        "import os\nprint(sorted(os.environ))",
        str(sorted(("HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "TMPDIR"))),
    ),
    "unicode": ("print('数学 ✓')", "数学 ✓"),
    "exit by os._exit": ("import os\nprint(1, flush=True)\nos._exit(0)", "1"),
    "a late thread": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
        "late",
    ),
    "a busy daemon thread": (
        "import threading\ndef f():\n  while True: pass\nthreading.Thread(target=f, daemon=True).start()\nprint('ok')",
        "ok",
    ),
}
WITH_FILES = {
    "a file of its own": ("open('x', 'w').write('y')\nprint(open('x').read())", "y"),
    "temporary files": (
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: print(d.startswith('/sandbox'))",
        "True",
    ),
    "/tmp": ("open('/tmp/x', 'w').write('y')\nprint(open('/tmp/x').read())", "y"),
    "metadata": (
        "import os\nopen('x', 'w').close()\nos.chmod('x', 0o600)\nos.utime('x', (1, 1))\nprint(os.stat('x').st_mtime)",
        "1.0",
    ),
    "copies": (
        "import shutil\nopen('x', 'w').write('y')\nshutil.copy2('x', 'z')\n"
        "shutil.move('z', 'w')\nprint(open('w').read())",
        "y",
    ),
    "a data base on disk": (
        "import sqlite3\nc = sqlite3.connect('db')\n"
        "c.execute('create table t (x)')\nc.execute('insert into t values (1)')\n"
        "c.commit()\nprint(c.execute('select x from t').fetchone())",
        "(1,)",
    ),
    "a mapped file": (
        "import mmap\nopen('x', 'wb').write(bytes(4096))\nf = open('x', 'r+b')\n"
        "m = mmap.mmap(f.fileno(), 0)\nm[0] = 1\nprint(m[0])",
        "1",
    ),
    "null device": ("print('x', file=open('/dev/null', 'w'))\nprint(1)", "1"),
    "time zones": (
        "import zoneinfo, os\n"
        "print(zoneinfo.ZoneInfo('Europe/Paris').key if os.path.exists('/usr/share/zoneinfo') else 'Europe/Paris')",
        "Europe/Paris",
    ),
    "an import of its own": (
        "open('mine.py', 'w').write('x = 1')\nimport sys\nsys.path.insert(0, '.')\nimport mine\nprint(mine.x)",
        "1",
    ),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_honest_program(sandbox: Sandbox, name: str) -> None:
    source, expected = EVERYWHERE[name]
    result = sandbox.run(source, stdin=b"1 2\n3\n", limits=Limits(cpu_s=5.0, memory_mb=256))
    assert result.is_clean, result
    assert result.stdout.decode().strip() == expected


@pytest.mark.parametrize("name", WITH_FILES)
def test_honest_program_with_files(ns: Sandbox, name: str) -> None:
    source, expected = WITH_FILES[name]
    if name == "/tmp" and ns.run("import os\nprint(os.getcwd())").stdout != b"/tmp\n":
        pytest.skip("the interpreter lies under /tmp, so the scratch folder is elsewhere")
    result = ns.run(source)
    assert result.is_clean, result
    assert result.stdout.decode().strip() == expected


def test_files_lie_in_the_scratch_folder(ns: Sandbox) -> None:
    files = {".planted": b"\xff\0x", "data/deep/words.txt": b"one\ntwo\n", "empty": b""}
    look = (
        "import os\nprint(sorted(os.listdir('.')), open('.planted', 'rb').read(), open('data/deep/words.txt').read())\n"
        "open('empty', 'a').write('x')"
    )
    result = ns.run(look, files=files)
    assert result.is_clean, result
    assert result.stdout == b"['.planted', 'data', 'empty'] b'\\xff\\x00x' one\ntwo\n\n"
    assert ns.run("import os\nprint(os.listdir('.'))").stdout == b"[]\n"


@pytest.mark.parametrize(
    "files",
    [
        *({"/tmp/x": b""}, {"../x": b""}, {"a/../../x": b""}, {"": b""}, {".": b""}, {"a\0b": b""}, {"x" * 256: b""}),
        *({"a": b"", "a/b": b""}, {"x": bytes((1 << 20) + 1)}, {str(i): b"" for i in range(257)}),
    ],
    ids=lambda files: next(iter(files))[:8] or "no name",
)
def test_files_that_cannot_lie_there_are_refused(ns: Sandbox, files: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="scratch folder"):
        ns.run("print(1)", files=files, limits=Limits(disk_mb=1))


@pytest.mark.parametrize("level", ["landlock", "seccomp"])
def test_files_need_a_scratch_folder(open_level: Callable[[Level], Sandbox], level: Level) -> None:
    with pytest.raises(ValueError, match=f"no scratch folder at the level '{level}'"):
        open_level(level).run("print(1)", files={"x": b""})


def test_much_input_that_nobody_reads(sandbox: Sandbox) -> None:
    assert sandbox.run("print('done')", stdin=b"x" * (5 << 20)).stdout == b"done\n"


def test_much_input_and_output(sandbox: Sandbox) -> None:
    data = b"0123456789abcde\n" * (1 << 16)
    result = sandbox.run("import sys\nsys.stdout.write(sys.stdin.read())", stdin=data)
    assert result.stdout == data


def test_a_host_with_many_threads_takes_none_from_a_program(sandbox: Sandbox) -> None:
    stop = threading.Event()
    crowd = [threading.Thread(target=stop.wait) for _ in range(100)]
    for thread in crowd:
        thread.start()
    try:
        result = sandbox.run(EVERYWHERE["threads"][0], limits=Limits(processes=24))
    finally:
        stop.set()
    assert result.stdout == b"done\n", result


def test_runs_share_nothing_of_each_other(sandbox: Sandbox) -> None:
    assert sandbox.run("import builtins, sys\nbuiltins.print = None\nsys.modules['math'] = None").is_clean
    assert sandbox.run("import math\nprint(math.pi > 3)").stdout == b"True\n"


def test_random_numbers_differ_between_runs(sandbox: Sandbox) -> None:
    said = {sandbox.run("import random\nprint(random.random())").stdout for _ in range(3)}
    assert len(said) == 3


def test_trivial_programs_are_quick(sandbox: Sandbox) -> None:
    began = time.monotonic()
    cpu = min(sandbox.run("print(1)").cpu_s for _ in range(20))
    assert cpu < 0.05
    assert time.monotonic() - began < 20
