"""Declares the tracker. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_trackers() -> list[Component]:
    """The tracker of this package."""
    return [
        Component(
            "tensorboard",
            "roll_plugin_tensorboard.tracker:TensorBoardTracker",
            summary="event files for TensorBoard, without TensorFlow or torch",
            permissions=frozenset({"files"}),
        )
    ]
