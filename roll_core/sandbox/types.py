"""What a run in the jail is given, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Level = Literal["ns", "landlock", "seccomp"]
"""How a jail is made; `ns` is the strongest, `seccomp` works where neither namespaces nor Landlock do."""

LEVELS: tuple[Level, ...] = ("ns", "landlock", "seccomp")
"""Strongest first."""


_LARGEST_LIMIT = 1 << 30
"""Beyond any machine, and small enough for the kernel's arithmetic in bytes."""


class SandboxError(RuntimeError):
    """The jail itself failed (it could not be set up, or its zygote died). Never the program's doing."""


class SandboxUnavailableError(SandboxError):
    """No level of the jail holds on this machine; the message gives the reason per level."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run."""

    cpu_s: float = 5.0
    """CPU seconds of all threads and processes of the run."""
    wall_s: float | None = None
    """Seconds of wall clock; None means four times `cpu_s`. A backstop for sleepers: CPU time decides."""
    memory_mb: int = 512
    """Memory of all processes of the run together, in MiB."""
    output_kb: int = 4096
    """Bytes of stdout, and of stderr, each, in KiB."""
    processes: int = 64
    """Processes and threads."""
    disk_mb: int = 64
    """Bytes in the scratch folder, in MiB."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("cpu_s", self.cpu_s, 0.001),
            ("wall_s", self.wall, 0.001),
            ("memory_mb", self.memory_mb, 1),
            ("output_kb", self.output_kb, 0),
            ("processes", self.processes, 1),
            ("disk_mb", self.disk_mb, 0),
        ):
            if not least <= value <= _LARGEST_LIMIT:
                raise ValueError(f"the limit {name} of a run must be from {least} to {_LARGEST_LIMIT}, not {value}")

    @property
    def wall(self) -> float:
        """The wall-clock limit in seconds."""
        return 4.0 * self.cpu_s if self.wall_s is None else self.wall_s


class Ending(StrEnum):
    """How a program ended. All of these are the program's doing."""

    EXITED = "exited"
    """By itself; `exit_code` says how."""
    SIGNALLED = "signalled"
    """By a signal; `signal` says which."""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"
    KILLED = "killed"
    """By the caller."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of one run; nothing of it is alive any more."""

    level: str
    """The level it ran at, or the name of an external backend."""
    ending: Ending
    exit_code: int | None
    """Exit status where it ended by itself, else None."""
    signal: int | None
    """The signal that ended it, else None."""
    stdout: bytes
    """At most `Limits.output_kb`."""
    stderr: bytes
    """At most `Limits.output_kb`."""
    result: bytes
    """What the harness inside wrote to its result file: the program can forge it, so it is data, never a verdict."""
    cpu_s: float
    """CPU seconds used."""
    wall_s: float
    """Seconds from start to end."""
    memory_mb: float
    """Largest resident memory seen, in MiB."""

    @property
    def is_clean(self) -> bool:
        """Whether it ended by itself with exit status 0, within every limit."""
        return self.ending is Ending.EXITED and self.exit_code == 0
