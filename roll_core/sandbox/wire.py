"""What the host and a zygote say to each other: one JSON message a packet, descriptors beside it.

Never the program, its input or an expected value: every jailed program starts as a copy of the zygote's memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from roll_core.sandbox.types import Level

MAX_PACKET = 1 << 16
"""Bytes; packets are a few hundred, the configuration a few thousand."""
MAX_FDS = 6
"""stdin, stdout, stderr, result, peer (when there is one), job: in this order."""
STANDARD_FDS = 4
"""The first four of them are the program's descriptors 0 to 3; a peer is its descriptor 4."""


@dataclass(frozen=True, slots=True)
class ZygoteConfig:
    """What a zygote is told at its start."""

    level: Level
    readable: Sequence[str]
    """Paths that programs may read (not at the `seccomp` level)."""
    import_paths: Sequence[str]
    """Folders that programs may import from, beside the standard library."""
    preload: Sequence[str]
    """Modules imported before the first run."""
    allow_processes: bool


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run. Its descriptors come with it."""

    run: int
    cpu_s: float
    wall_s: float
    memory_mb: int
    processes: int
    disk_mb: int
    file_bytes: int
    """Largest file, outputs included."""
    has_peer: bool


@dataclass(frozen=True, slots=True)
class KillRequest:
    """Kill a run that may still be alive."""

    kill: int


@dataclass(frozen=True, slots=True)
class Started:
    """The zygote's first word: ready, or why not."""

    error: str | None = None


Stop = Literal["cpu", "wall", "memory", "killed"]
"""Why the zygote killed a run."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run is over and all its processes are gone."""

    run: int
    failure: str | None
    """What went wrong before the program got control: the machinery's fault. None: it ran."""
    stopped: Stop | None
    status: int
    """As `os.wait4` gives it."""
    cpu_s: float
    wall_s: float
    memory_kb: int


def encode(message: ZygoteConfig | RunRequest | KillRequest | Started | RunReport) -> bytes:
    """One message as one packet."""
    return json.dumps(asdict(message)).encode()


def decode(packet: bytes) -> dict[str, Any]:
    """The fields of a message; its receiver knows which class they make."""
    fields: dict[str, Any] = json.loads(packet)
    return fields
