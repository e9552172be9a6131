"""Declares the component `choice`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The `choice` verifier."""
    return [
        Component(
            "choice",
            "roll_verifier_choice.verify:ChoiceVerifier",
            summary="the option of a multiple choice that a response commits to, by letter or text",
            scope="worker",
        )
    ]
