"""Declares the train strategy. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_train_strategies() -> list[Component]:
    """The strategy of this package."""
    return [
        Component(
            "fsdp",
            "roll_plugin_fsdp.strategy:make_strategy",
            config="roll_plugin_fsdp.options:FsdpOptions",
            summary="full sharding over many processes (FSDP2), with replicas and tensor parallelism",
            source="arXiv:2304.11277",
            permissions=frozenset({"gpu", "files", "subprocess", "network"}),
            scope="rank",
        )
    ]
