"""What runs in the jail, next to the untrusted code: everything it reports from there is data, never a verdict."""

from __future__ import annotations

import os
import traceback
from os import _exit as leave_now
from typing import Any, NoReturn

from roll_core.sandbox.inside.calls import answer_calls
from roll_core.sandbox.inside.program import run_program
from roll_core.sandbox.inside.serve import serve_candidate
from roll_core.sandbox.inside.streams import install_streams
from roll_core.sandbox.inside.trusted import run_trusted_tests

RESULT_FD = 3
"""The result file (a memfd made by the host)."""

PEER_FD = 4
"""The socket to the other jail, where there is one."""

HARNESS_RAISED = 70
"""Exit status where an exception reached this place: untrusted code ran before, so it may be its doing."""


def main(job: dict[str, Any], *, has_peer: bool) -> NoReturn:
    """Do one job in a process that is locked down already, and end the process.

    Args:
        job: `mode` is "program" (`source`), "calls" (`source`, `calls`), "serve" (`source`) or "tests" (`tests`,
            `reference`, `entry_point`, `copy_back`).
        has_peer: whether descriptor 4 is a socket to the other jail.

    Raises:
        ValueError: the job is not one of these (the host made it, so this is a fault of the host).
    """
    mode = job.get("mode")
    if mode not in ("program", "calls", "serve", "tests") or (mode in ("serve", "tests")) is not has_peer:
        raise ValueError(f"no such job for the jail: mode {mode!r}, peer {has_peer}")
    try:
        streams = install_streams()
        if mode == "program":
            run_program(job["source"], streams)
        if mode == "calls":
            answer_calls(job["source"], job["calls"], RESULT_FD, streams)
        if mode == "serve":
            serve_candidate(job["source"], PEER_FD, streams)
        run_trusted_tests(job, PEER_FD, RESULT_FD, streams)
    except BaseException:  # noqa: BLE001  untrusted code may raise here through signal handlers, and that is its own end
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        leave_now(HARNESS_RAISED)
