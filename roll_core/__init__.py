"""ROLL, the plugin edition: a small reinforcement-learning engine for language models.

Public names are imported on first use, so that `import roll_core` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roll_core.api import train
    from roll_core.errors import (
        BackendError,
        CheckpointError,
        ComponentError,
        ConfigError,
        DataError,
        GroupError,
        PluginError,
        RollError,
        StarvationError,
        UnknownNameError,
    )
    from roll_core.plugin.component import Component
    from roll_core.plugin.decorators import advantage, filter, policy_loss, reward, verifier
    from roll_core.plugin.hookspecs import hookimpl
    from roll_core.plugin.verifier import load_verifier
    from roll_core.types import Prompt, Rollout, RolloutGroup, Status, Verdict

    __version__: str

__all__ = [
    "BackendError",
    "CheckpointError",
    "Component",
    "ComponentError",
    "ConfigError",
    "DataError",
    "GroupError",
    "PluginError",
    "Prompt",
    "RollError",
    "Rollout",
    "RolloutGroup",
    "StarvationError",
    "Status",
    "UnknownNameError",
    "Verdict",
    "__version__",
    "advantage",
    "filter",
    "hookimpl",
    "load_verifier",
    "policy_loss",
    "reward",
    "train",
    "verifier",
]

_HOMES = {
    "roll_core.api": ("train",),
    "roll_core.errors": (
        "BackendError",
        "CheckpointError",
        "ComponentError",
        "ConfigError",
        "DataError",
        "GroupError",
        "PluginError",
        "RollError",
        "StarvationError",
        "UnknownNameError",
    ),
    "roll_core.plugin.component": ("Component",),
    "roll_core.plugin.decorators": ("advantage", "filter", "policy_loss", "reward", "verifier"),
    "roll_core.plugin.hookspecs": ("hookimpl",),
    "roll_core.plugin.verifier": ("load_verifier",),
    "roll_core.types": ("Prompt", "Rollout", "RolloutGroup", "Status", "Verdict"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from roll_core.plugin.discovery import core_version

        value: Any = core_version()
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'roll_core' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
