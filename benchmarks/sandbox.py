"""Runs per second of a trivial program: our sandbox at each level, beside other ways to run untrusted Python.

    python benchmarks/sandbox.py                  # some 20 s; --seconds and --rounds for more

The program reads a number and prints its square. Every way runs it from `--threads` threads at a time, the ways taking
turns round after round, so that a busy machine hurts all of them alike; a figure is the median over the rounds.

* ours: `roll_core.sandbox.Sandbox`, one zygote per thread.
* subprocess: `python3 -I` and nothing else: no isolation, no limits.
* bwrap: `python3 -I` in bubblewrap, with own namespaces, a read-only system and an empty environment.
* fusion: what SandboxFusion does with isolation "none", its default (a fresh folder, a shell with the whole environment
  of the server, pipes that are read after the end, at most 1 MB of each), and with "lite" (the same under an overlay of
  the file system, a network namespace and chroot; needs root).

The last line is `runs/s <ours> subprocess <x> bwrap <y>`, ours at the strongest level that holds; y is `none` without
bubblewrap.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from roll_core.sandbox import LEVELS, Limits, Sandbox, SandboxUnavailableError

SOURCE = "print(int(input()) ** 2)\n"
STDIN, STDOUT = b"12\n", b"144\n"
PYTHON = os.path.realpath(sys.executable)
LIMITS = Limits(cpu_s=5.0)
TIMEOUT_S = 20.0
FUSION_BYTES = 1024 * 1024

Way = Callable[[], bytes]
"""Runs the program once and returns its output."""


def plain() -> bytes:
    """The interpreter in a child process."""
    command = [PYTHON, "-I", "-c", SOURCE]
    return subprocess.run(command, input=STDIN, capture_output=True, timeout=TIMEOUT_S, check=True).stdout


def bwrap_command() -> list[str]:
    """Bubblewrap around the interpreter, as strict as its options make it."""
    folders = [Path(sys.base_prefix).resolve(), *map(Path, ("/usr", "/lib", "/lib64", "/bin"))]
    binds = [part for folder in folders if folder.exists() for part in ("--ro-bind", str(folder), str(folder))]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *binds,
        "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp", "--cap-drop", "ALL", PYTHON, "-I", "-c", SOURCE,
    ]  # fmt: skip


def bwrap(command: list[str]) -> bytes:
    """The interpreter in bubblewrap."""
    return subprocess.run(command, input=STDIN, capture_output=True, timeout=TIMEOUT_S, check=True, env={}).stdout


def fusion(prefix: str = "", folder: str | None = None, inside: str = "") -> bytes:
    """SandboxFusion's way: a shell in a fresh folder; output is read when the process is gone.

    Args:
        prefix: shell words before the command.
        folder: where fresh folders are made; None for the system's.
        inside: what to cut from a folder's name to have its name as the program sees it.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        Path(place, "main.py").write_text(SOURCE)
        seen = place.removeprefix(inside)
        process = subprocess.Popen(
            f"{prefix} bash -c 'cd {seen} && {PYTHON} main.py'",
            shell=True,
            executable="/bin/bash",
            cwd=place,
            env={**os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            with process.stdin:
                process.stdin.write(STDIN)
            process.wait(TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stderr.read(FUSION_BYTES)
            return process.stdout.read(FUSION_BYTES)


def fusion_lite() -> bytes:
    """The same under an overlay of the whole file system, made and taken away for every run."""
    base = tempfile.mkdtemp()
    root = f"{base}/root"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", base], check=True)
        for name in ("root", "upper", "work"):
            os.mkdir(f"{base}/{name}")
        options = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=True, capture_output=True)
        try:
            return fusion(f"unshare --net chroot {root}", f"{root}/tmp", root)
        finally:
            subprocess.run(["umount", "-l", root], check=True)
    finally:
        subprocess.run(["umount", "-l", base], check=False, capture_output=True)
        os.rmdir(base)


def rate(way: Way, pool: ThreadPoolExecutor, threads: int, seconds: float) -> float:
    """Runs per second, over about `seconds`."""

    def work() -> int:
        count = 0
        while time.perf_counter() - started < seconds:
            if way() != STDOUT:
                raise RuntimeError("a run printed something else")
            count += 1
        return count

    started = time.perf_counter()
    jobs = [pool.submit(work) for _ in range(threads)]
    return sum(job.result() for job in jobs) / (time.perf_counter() - started)


def ways(threads: int, opened: contextlib.ExitStack) -> dict[str, Way]:
    """Every way that works here, ours first; says why others do not."""
    found: dict[str, Way] = {}
    for level in LEVELS:
        try:
            sandbox = opened.enter_context(Sandbox(level, zygotes=threads))
        except SandboxUnavailableError as error:
            print(f"ours {level}: not here: {error}")
            continue
        found[f"ours {level}"] = functools.partial(run_ours, sandbox)
    others: dict[str, Way] = {"subprocess": plain, "fusion none": fusion, "fusion lite": fusion_lite}
    if shutil.which("bwrap"):
        others["bwrap"] = functools.partial(bwrap, bwrap_command())
    for name, way in others.items():
        try:
            works = way() == STDOUT
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{name}: not here: {error}")
            continue
        if works:
            found[name] = way
        else:
            print(f"{name}: not here: it prints something else")
    return found


def run_ours(sandbox: Sandbox) -> bytes:
    """One run in our jail."""
    return sandbox.run(SOURCE, stdin=STDIN, limits=LIMITS).stdout


def main() -> None:
    """Measure every way in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6, help="of one way in one round")
    options = parser.parse_args()
    with contextlib.ExitStack() as opened:
        found = ways(options.threads, opened)
        pool = opened.enter_context(ThreadPoolExecutor(options.threads))
        rates: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(options.rounds):
            for name, way in found.items():
                rates[name].append(rate(way, pool, options.threads, options.seconds))
    print(f"{'way':14s} {'median/s':>9s} {'best/s':>9s} {'ms a run and thread':>20s}")
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:14s} {middle[name]:9.1f} {max(values):9.1f} {1000 * options.threads / middle[name]:20.1f}")
    ours = next((value for name, value in middle.items() if name.startswith("ours")), None)
    texts = ["none" if value is None else f"{value:.1f}" for value in (ours, middle["subprocess"], middle.get("bwrap"))]
    print("runs/s {} subprocess {} bwrap {}".format(*texts))


if __name__ == "__main__":
    main()
