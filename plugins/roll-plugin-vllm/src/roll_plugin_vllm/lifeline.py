"""vLLM's processes end when the replica's does, however that happens."""

from __future__ import annotations

import contextlib
import os
import select
import signal


def end_with(owner: int) -> None:
    """Wait for the end of a process, then kill this one; and its parent, where that is a process between the two.

    Runs on a thread of vLLM's worker. vLLM's workers end with its engine process, but that one outlives a replica that
    was killed, with all its memory.

    Args:
        owner: process id of the replica. The engine process is its child; the worker is a child of the engine process,
            or that process itself.
    """
    parent = os.getppid()
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        descriptor = os.pidfd_open(owner)
        select.select([descriptor], [], [])
        os.close(descriptor)
    if parent not in (1, owner) and os.getppid() == parent:
        os.kill(parent, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
