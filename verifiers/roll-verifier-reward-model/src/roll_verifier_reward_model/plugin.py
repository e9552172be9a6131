"""Declares the component `reward_model`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The `reward_model` verifier."""
    return [
        Component(
            "reward_model",
            "roll_verifier_reward_model.verify:RewardModelVerifier",
            summary="the score of a sequence-classification reward model, in batches",
            permissions=frozenset({"files", "gpu"}),
        )
    ]
