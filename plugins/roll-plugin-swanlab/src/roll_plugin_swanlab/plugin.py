"""Declares the tracker. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_trackers() -> list[Component]:
    """The tracker of this package."""
    return [
        Component(
            "swanlab",
            "roll_plugin_swanlab.tracker:SwanLabTracker",
            summary="SwanLab, online, offline or on a local dashboard",
            permissions=frozenset({"network", "files"}),
        )
    ]
