"""Declares the component `instructions`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The verifier of this package."""
    return [
        Component(
            "instructions",
            "roll_verifier_instructions.verify:InstructionsVerifier",
            summary="the response follows every IFEval instruction of the reference",
            source="Zhou et al. 2023, arXiv:2311.07911 (IFEval)",
            scope="worker",
        )
    ]
