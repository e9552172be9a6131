"""From the fork to the program: one child locks itself down and hands over to the code that runs inside."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from roll_core.sandbox import inside
from roll_core.sandbox.kernel import landlock, libc
from roll_core.sandbox.scratch import unpack
from roll_core.sandbox.wire import STANDARD_FDS, RunRequest
from roll_core.sandbox.zygote import attacks, identity, rlimits, root
from roll_core.sandbox.zygote.state import Prepared

READY = b"R"
"""Written to the status pipe when the lock-down is complete; anything else there is the reason why it is not."""
_HIGH = 32
"""Descriptors are moved above this number first, so that none is overwritten before it is moved."""
_SIGKILL = 9
_HARNESS_FAILED = 121
_READ_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Birth:
    """What a child is given at the fork."""

    request: RunRequest
    fds: Sequence[int]
    """stdin, stdout, stderr, result, peer if there is one, job."""
    status: int
    """The writing end of the pipe that says how the lock-down went."""
    zygote: int
    """The parent's pid."""
    uid: int | None
    """Whom to become; None to stay."""
    other_threads: int
    """Threads of other processes that count against the same user."""


def run_child(prepared: Prepared, birth: Birth, control: socket.socket) -> NoReturn:
    """Become the jailed program. Nothing in this process is trusted from the moment that `READY` is written.

    Args:
        prepared: what the zygote made ready.
        birth: what is this run's own.
        control: the zygote's channel, which this process must lose.
    """
    status = birth.status
    try:
        control.detach()  # or its finaliser would close whatever has its number by then
        _leave_the_host(prepared, birth)
        job_fd, status = _place_descriptors(birth)
        rlimits.set_limits(
            birth.request,
            own_address_space=prepared.address_space,
            other_threads=birth.other_threads,
            may_execute=prepared.config.allow_processes,
        )
        libc.install_filter(prepared.program.for_pid(os.getpid()))
        os.write(status, READY)
        os.close(status)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the host must hear of it and no program may run
        os.write(status, f"{type(error).__name__}: {error}".encode()[:1000])
        os._exit(_HARNESS_FAILED)
    try:  # a job may be too large for the run's limits: from here on every failure is the program's
        job = _read_job(job_fd)
        unpack(job)
        if job.get("mode") == attacks.MODE:
            attacks.main(job)
        inside.main(job, has_peer=birth.request.has_peer)
    except BaseException as error:  # noqa: BLE001 - the process ends here whatever it is
        os.write(2, f"{type(error).__name__}: {error}\n".encode()[:1000])
    finally:
        os._exit(_HARNESS_FAILED)


def _leave_the_host(prepared: Prepared, birth: Birth) -> None:
    """Everything that needs the zygote's privileges, descriptors or view of the host; then lose them."""
    os.setsid()
    identity.offer_to_the_oom_killer(prepared.proc.fd)
    if prepared.config.level == "ns":
        libc.unshare(libc.CLONE_NEWUSER | libc.CLONE_NEWNS)  # a user namespace of its own counts its own threads
        identity.map_own_ids(prepared.proc.fd, prepared.uid, prepared.gid)
        root.mount_scratch(birth.request.disk_mb)
    else:
        os.chdir("/")
        if birth.uid is not None:
            identity.become(birth.uid)
        libc.prctl(libc.PR_SET_PDEATHSIG, _SIGKILL)
        if os.getppid() != birth.zygote:
            raise RuntimeError("the zygote has died")
    libc.drop_capabilities(bounding_set=prepared.config.allow_processes)
    if prepared.ruleset is not None:
        landlock.restrict_self(prepared.ruleset)


def _place_descriptors(birth: Birth) -> tuple[int, int]:
    """Move this run's descriptors to 0, 1, 2, ... and close all others.

    Returns:
        The new numbers of the job and of the status pipe.
    """
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in (*birth.fds, birth.status)]
    for number, fd in enumerate(moved):
        os.dup2(fd, number, inheritable=number < STANDARD_FDS - 1)
    libc.close_from(len(moved))
    return len(moved) - 2, len(moved) - 1


def _read_job(fd: int) -> dict[str, Any]:
    blocks = []
    while block := os.read(fd, _READ_SIZE):
        blocks.append(block)
    os.close(fd)
    job: dict[str, Any] = json.loads(b"".join(blocks))
    return job
