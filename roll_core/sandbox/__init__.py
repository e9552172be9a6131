"""A jail for untrusted Python programs, made of nothing but the standard library and the Linux kernel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_core.sandbox.running import Running
    from roll_core.sandbox.sandbox import Sandbox, probe
    from roll_core.sandbox.settings import DEFAULT_PRELOAD
    from roll_core.sandbox.types import (
        LEVELS,
        Ending,
        Level,
        Limits,
        RunResult,
        SandboxError,
        SandboxUnavailableError,
    )

__all__ = [
    "DEFAULT_PRELOAD",
    "LEVELS",
    "Ending",
    "Level",
    "Limits",
    "RunResult",
    "Running",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailableError",
    "probe",
]

_HOMES = {
    "roll_core.sandbox.running": ("Running",),
    "roll_core.sandbox.sandbox": ("Sandbox", "probe"),
    "roll_core.sandbox.settings": ("DEFAULT_PRELOAD",),
    "roll_core.sandbox.types": (
        "LEVELS",
        "Ending",
        "Level",
        "Limits",
        "RunResult",
        "SandboxError",
        "SandboxUnavailableError",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'roll_core.sandbox' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
