"""Declares the tracker. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_trackers() -> list[Component]:
    """The tracker of this package."""
    return [
        Component(
            "wandb",
            "roll_plugin_wandb.tracker:WandbTracker",
            summary="Weights & Biases, online or offline",
            permissions=frozenset({"network", "subprocess", "files"}),
        )
    ]
