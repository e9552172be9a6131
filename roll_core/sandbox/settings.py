"""What a sandbox was asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from roll_core.sandbox.kernel.syscalls import this_architecture
from roll_core.sandbox.paths import readable_paths
from roll_core.sandbox.types import LEVELS, Level, Limits, SandboxError
from roll_core.sandbox.wire import ZygoteConfig

LEVEL_VARIABLE = "ROLL_SANDBOX_LEVEL"
"""Environment variable that forces a level where the code says "auto"."""
DEFAULT_PRELOAD: tuple[str, ...] = (
    *("math", "collections", "itertools", "functools", "heapq", "bisect", "re", "string", "random", "typing"),
    *("datetime", "json", "io", "operator", "copy", "decimal", "fractions", "statistics", "threading"),
)
"""Modules that every program finds loaded already."""
DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a sandbox, as plain data."""

    level: Level | Literal["auto"] = "auto"
    zygotes: int = 1
    preload: Sequence[str] = DEFAULT_PRELOAD
    packages: Sequence[str] = ()
    allow_processes: bool = False
    python: str = field(default_factory=lambda: sys.executable)

    def __post_init__(self) -> None:
        if self.level != "auto" and self.level not in LEVELS:
            raise ValueError(f"no sandbox level {self.level!r}; there are auto, {', '.join(LEVELS)}")
        if self.zygotes < 1:
            raise ValueError(f"a sandbox needs at least one zygote, not {self.zygotes}")
        for folder in self.packages:
            if not os.path.isdir(folder):
                raise ValueError(f"no folder {folder!r} to import packages from")

    def levels(self) -> tuple[Level, ...]:
        """The levels to try, strongest first.

        Raises:
            ValueError: the environment variable names no level.
        """
        wanted = self.level
        if wanted == "auto":
            forced = os.environ.get(LEVEL_VARIABLE, "auto") or "auto"
            if forced not in ("auto", *get_args(Level)):
                raise ValueError(f"{LEVEL_VARIABLE} is {forced!r}; use auto, {', '.join(LEVELS)}")
            wanted = next((level for level in LEVELS if level == forced), "auto")
        return LEVELS if wanted == "auto" else (wanted,)

    def for_zygote(self, level: Level) -> ZygoteConfig:
        """What a zygote at `level` is told.

        Raises:
            SandboxError: the level cannot give what was asked for, or this is no machine for a jail.
        """
        this_architecture()
        if self.allow_processes and level != "ns":
            raise SandboxError("processes of a run can be contained in a pid namespace only, which this level lacks")
        readable = readable_paths(self.python, self.packages, allow_processes=self.allow_processes)
        return ZygoteConfig(level, readable, list(self.packages), list(self.preload), self.allow_processes)
