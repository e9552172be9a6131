"""What can be asked about a process of this machine from outside, even when it answers nothing any more."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from pathlib import Path
from typing import IO

_QUIET_S = 0.05


def enable_dumps(trace: IO[str]) -> None:
    """Let SIGUSR1 write the stacks of all threads to `trace`.

    The handler is C code that needs neither the interpreter lock nor the main thread, so that it works while a thread
    is inside native code, even one that never gives the lock back.
    """
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True, chain=False)


def dump_stacks(pid: int, trace: Path, timeout_s: float = 2.0) -> str:
    """Ask a process for the stacks of its threads.

    Args:
        pid: a process that has called `enable_dumps`.
        trace: the file it writes to.
        timeout_s: how long to wait for it.

    Returns:
        The dump; empty when the process is gone or stopped.
    """
    try:
        start = trace.stat().st_size
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return ""
    deadline, size, text = time.monotonic() + timeout_s, start, ""
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        grown = trace.stat().st_size
        if grown > start and grown == size:  # written, and quiet since
            break
        size = grown
    with contextlib.suppress(OSError):
        text = read_from(trace, start)
    return text.strip()


def read_from(path: Path, offset: int) -> str:
    """Text of a file from a byte offset on."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().decode("utf-8", "replace")


def tail(path: Path, size: int = 2000) -> str:
    """The last `size` bytes of a log, from the start of a line on where that is possible; empty when there is none."""
    try:
        total = path.stat().st_size
        text = read_from(path, max(total - size, 0)).strip()
    except OSError:
        return ""
    head, newline, rest = text.partition("\n")
    return rest if total > size and newline and len(head) < size // 2 else text


def rss_bytes(pid: int) -> int | None:
    """Resident memory of a process; None when it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def kill_tree(pid: int) -> None:
    """SIGKILL a process that leads a group, and with it every process it started that stayed in the group.

    The leader may have ended and been reaped: its id stays taken while any of its group lives.
    """
    try:
        leads = os.getpgid(pid) == pid
    except ProcessLookupError:
        leads = True
    with contextlib.suppress(OSError):
        (os.killpg if leads else os.kill)(pid, signal.SIGKILL)


def ended_how(code: int) -> str:
    """An exit status in words."""
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
