"""Programs in the jail end and print as they do under `python solution.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roll_core.sandbox.sandbox import Sandbox
from roll_core.sandbox.types import Ending, Limits

LIMITS = Limits(cpu_s=5.0)

PROGRAMS = {
    "text": ("n = int(input())\nprint(sum(map(int, input().split())), n)", b"3\n1 2 3\n"),
    "stdin forms": (
        "import sys\nprint(sys.stdin.readline().strip())\nprint(sys.stdin.buffer.readline())\nprint(sys.stdin.read())",
        b"a\n" + b"b" * 9000 + b"\nc\nd",
    ),
    "buffers": ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", bytes(range(256))),
    "descriptors": ("import os\nos.write(1, os.read(0, 100))", b"raw"),
    "open by number": ("print(open(0).read().split())\nout = open(1, 'w')\nout.write('kept open')", b"1 2\n3"),
    "line ends are kept": ("import sys\nprint(repr(input()), [repr(x) for x in sys.stdin])", b"a\r\nb\r\nc"),
    "input at the end": ("input()\ninput()", b"x\n"),
    "prompt": ("x = input('name? ')\nprint(x)", b"me\n"),
    "undecodable": ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", b"\xff\xfe"),
    "name and arguments": ("import sys\nprint(__name__, sys.argv, sys.modules['__main__'].__dict__ is globals())", b""),
    "main guard": ("def main(): print('main')\nif __name__ == '__main__':\n    main()", b""),
    "exit none": ("import sys\nprint('x')\nsys.exit()", b""),
    "exit number": ("import sys\nsys.exit(7)", b""),
    "exit large": ("import sys\nsys.exit(256 + 3)", b""),
    "exit negative": ("import sys\nsys.exit(-1)", b""),
    "exit huge": ("import sys\nsys.exit(1 << 70)", b""),
    "exit text": ("import sys\nsys.exit('the end')", b""),
    "exit false": ("exit(False)", b""),
    "exit object": ("raise SystemExit([1, 2])", b""),
    "quit": ("print(1)\nquit()", b""),
    "os._exit": ("import os\nprint('lost')\nos._exit(5)", b""),
    "uncaught": ("def f(): return 1 / 0\nprint('before')\nf()", b""),
    "uncaught chain": ("try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e", b""),
    "syntax": ("print(1)\ndef f(:\n    pass", b""),
    "indentation": ("if 1:\nprint(2)", b""),
    "excepthook": ("import sys\nsys.excepthook = lambda t, v, b: print('hook', t.__name__)\n1 / 0", b""),
    "standard error broken": ("import sys\nsys.stderr = None\n1 / 0", b""),
    "broken excepthook": ("import sys\ndef h(*a): raise KeyError('h')\nsys.excepthook = h\n1 / 0", b""),
    "threads are waited for": (
        """import threading, time
def w():
    time.sleep(.1)
    print('thread')
threading.Thread(target=w).start()
print('main')""",
        b"",
    ),
    "daemon threads are not": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(60), daemon=True).start()\nprint('main')",
        b"",
    ),
    "error in a thread": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\nprint('on')",
        b"",
    ),
    "executor left open": (
        "from concurrent.futures import ThreadPoolExecutor\ne = ThreadPoolExecutor(2)\nf = e.submit(print, 'pool')",
        b"",
    ),
    "recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10 ** 6)\nthreading.stack_size(1 << 26)\n"
        "def depth(n): return 0 if n == 0 else 1 + max(depth(n - 1), 0)\n"
        "t = threading.Thread(target=lambda: print(depth(50000)))\nt.start()\nt.join()",
        b"",
    ),
    "recursion limit": ("def f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError:\n    print('deep')", b""),
    "exit handlers": (
        "import atexit\natexit.register(print, 'last')\natexit.register(lambda: print('first'))\nprint('main')",
        b"",
    ),
    "exit handler after an error": ("import atexit\natexit.register(print, 'bye')\n1 / 0", b""),
    "destructors": ("class D:\n    def __del__(self): print('del')\nkeep = D()\nloop = [D()]\nloop.append(loop)", b""),
    "stdout replaced": ("import sys, io\nsys.stdout = io.StringIO()\nprint('hidden')", b""),
    "stdout wrapped": (
        """import sys, io, os
out = io.BytesIO()
sys.stdout = io.TextIOWrapper(out, write_through=True)
print('x')
os.write(1, out.getvalue())""",
        b"",
    ),
    "stdout closed": ("import sys\nprint('x')\nsys.stdout.close()", b""),
    "huge integers": ("import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(7 ** 20000)))", b""),
    "future annotations": (
        "from __future__ import annotations\ndef f(x: Undefined) -> Nothing: return x\nprint(f(1))",
        b"",
    ),
    "annotations": ("x: int = 3\nprint(__annotations__)", b""),
    "windows source": ("def f():\r\n\tif 1:\r\n\t\treturn 'tab'\r\nprint(f())\r\n", b""),
    "byte order mark": ("\ufeffprint('bom')", b""),
    "unicode source": ("größe = 'ñ漢字🎉'\nprint(größe, len(größe))", b""),
    "classes": (
        "from dataclasses import dataclass\nimport pickle, enum\n@dataclass(order=True)\nclass P:\n    x: int\n"
        "class E(enum.Enum): A = 1\nprint(pickle.loads(pickle.dumps(P(3))), E.A, P(1) < P(2))",
        b"",
    ),
    "standard error": ("import sys\nprint('e', file=sys.stderr)\nsys.stderr.write('no end')", b""),
    "interleaved": ("import sys\nprint('a')\nsys.stdout.flush()\nprint('b', file=sys.stderr)\nprint('c')", b""),
    "logging": ("import logging\nlogging.warning('w')\nprint(2)", b""),
    "asyncio": (
        "import asyncio\nasync def main():\n    await asyncio.sleep(0.01)\n    print('async')\nasyncio.run(main())",
        b"",
    ),
    "source for inspect": ("import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))", b""),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as opened:
        yield opened


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_under_cpython(sandbox, name, tmp_path):
    source, stdin = PROGRAMS[name]
    (tmp_path / "solution.py").write_bytes(source.encode())
    environment = {"PYTHONUTF8": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-I", "-X", "utf8", "solution.py"]
    want = subprocess.run(
        command, input=stdin, capture_output=True, cwd=tmp_path, env=environment, timeout=30, check=False
    )
    got = sandbox.run(source, stdin=stdin, limits=LIMITS)
    assert got.ending is Ending.EXITED
    assert got.exit_code == want.returncode, got.stderr.decode()
    assert got.stdout == want.stdout
    assert _shape(got.stderr) == _shape(want.stderr)


def _shape(stderr: bytes) -> list[str]:
    """The lines of standard error that start at the margin: the source lines and paths of tracebacks do not."""
    return [
        line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip() and not line.startswith(" ")
    ]


def test_a_traceback_shows_the_program_and_nothing_else(sandbox):
    result = sandbox.run("def f():\n    return 1 / 0\nf()", limits=LIMITS)
    assert b"return 1 / 0" in result.stderr
    assert b"roll_core" not in result.stderr
    assert result.stderr.count(b"File") == 2


def test_a_null_byte_in_the_source_is_an_error_of_the_program(sandbox):
    result = sandbox.run("print(1)\n\0", limits=LIMITS)
    assert (result.exit_code, result.stdout) == (1, b"")


def test_the_digit_limit_of_integers_is_lifted(sandbox):
    result = sandbox.run("print(len(str(7 ** 20000)), int('9' * 5000) > 0)", limits=LIMITS)
    assert result.stdout == b"16902 True\n"


def test_an_interrupt_ends_like_in_a_shell(sandbox):
    result = sandbox.run("raise KeyboardInterrupt", limits=LIMITS)
    assert result.exit_code == 130
    assert result.stderr.strip().endswith(b"KeyboardInterrupt")


def test_undecodable_text_goes_through(sandbox):
    assert sandbox.run("print(input())", stdin=b"\xff\xfe\n", limits=LIMITS).stdout == b"\xff\xfe\n"


def test_what_hooks_in_the_harness_raise_is_the_end_of_the_program(sandbox):
    source = (
        "import roll_core.sandbox.inside.program as p, os\n"
        "def bad(*a): raise RuntimeError('mine')\np.finish = bad\np.report = bad\nos._exit = bad\n"
    )
    result = sandbox.run(source, limits=LIMITS)
    assert result.ending is Ending.EXITED
    assert result.exit_code not in (0, None)
