"""The self-test of a zygote: things are put up to be attacked, a jailed child attacks them, nothing may succeed.

Asking whether a feature exists is not enough: some systems let a namespace be made and then take its powers away.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from roll_core.sandbox.channel import Channel
from roll_core.sandbox.outcome import RunFiles
from roll_core.sandbox.types import Limits, SandboxError
from roll_core.sandbox.wire import RunReport, RunRequest, ZygoteConfig

_MODE = "self-test"
_RUN = 0
"""Number of the run; programs start at 1."""
_DESCRIPTORS = 256
_SECRET = b"planted"
_PATIENCE_S = 60.0
_LIMITS = Limits(cpu_s=10.0, wall_s=30.0, memory_mb=256, output_kb=64, processes=16, disk_mb=1)


def attack(channel: Channel, config: ZygoteConfig) -> None:
    """Attack a fresh zygote's jail.

    Raises:
        SandboxError: an attack succeeded, or the jail could not be set up.
    """
    with ExitStack() as stack:
        plants = stack.enter_context(_planted())
        plants["allow_processes"] = config.allow_processes
        files = RunFiles(b"", json.dumps({"mode": _MODE, **plants}).encode(), _LIMITS)
        stack.callback(files.close)
        report = _report_of(channel, files)
        if report.failure is not None:
            raise SandboxError(report.failure)
        stdout, stderr, result = files.read()
        found = _parse(result)
        if found is None:
            said = (stdout + stderr).decode(errors="replace").strip()
            raise SandboxError(f"the self-test did not report (wait status {report.status}){said and ': '}{said}")
        if found["succeeded"]:
            raise SandboxError(f"the self-test broke out: it could {', '.join(found['succeeded'])}")
        _check_plants(plants)


def _report_of(channel: Channel, files: RunFiles) -> RunReport:
    request = RunRequest(
        run=_RUN,
        cpu_s=_LIMITS.cpu_s,
        wall_s=_LIMITS.wall,
        memory_mb=_LIMITS.memory_mb,
        processes=_LIMITS.processes,
        disk_mb=_LIMITS.disk_mb,
        file_bytes=files.largest,
        has_peer=False,
    )
    fds = [files.stdin.fd, files.stdout.fd, files.stderr.fd, files.result.fd, files.job.fd]
    try:
        return channel.submit(request, fds).result(_PATIENCE_S)
    except TimeoutError as error:
        raise SandboxError(f"the self-test did not end within {_PATIENCE_S:.0f} s") from error


def _parse(result: bytes) -> dict[str, list[str]] | None:
    try:
        found: dict[str, list[str]] = json.loads(result)
    except ValueError:
        return None
    return found


@contextmanager
def _planted() -> Iterator[dict[str, Any]]:
    """A readable file in a folder, a Unix socket that takes datagrams, and this process."""
    with tempfile.TemporaryDirectory(prefix="sandbox-self-test-") as folder, _listening() as abstract:
        os.chmod(folder, 0o777)  # noqa: S103 - anybody may try
        secret = os.path.join(folder, "secret")
        with open(secret, "wb") as file:
            file.write(_SECRET)
        os.chmod(secret, 0o644)
        yield {
            "secret": secret,
            "abstract": abstract,
            "pid": os.getpid(),
            "descriptors": _DESCRIPTORS,
            "processes": _LIMITS.processes,
        }


@contextmanager
def _listening() -> Iterator[str]:
    name = f"sandbox-self-test-{os.getpid()}-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        yield name


def _check_plants(plants: dict[str, Any]) -> None:
    folder = os.path.dirname(plants["secret"])
    with open(plants["secret"], "rb") as file:
        if file.read() != _SECRET or os.listdir(folder) != [os.path.basename(plants["secret"])]:
            raise SandboxError("the self-test broke out: it changed files of the host")
