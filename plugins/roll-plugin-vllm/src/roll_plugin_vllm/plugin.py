"""Declares the rollout backend. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_rollout_backends() -> list[Component]:
    """The backend of this package."""
    return [
        Component(
            "vllm",
            "roll_plugin_vllm.backend:make_backend",
            config="roll_plugin_vllm.options:VllmOptions",
            summary="vLLM 0.32 with continuous batching, prefix caching, several replicas, weights updated in place",
            source="arXiv:2309.06180",
            permissions=frozenset({"gpu", "files", "subprocess", "network"}),
        )
    ]
