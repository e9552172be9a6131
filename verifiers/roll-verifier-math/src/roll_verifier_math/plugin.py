"""Declares the component `math`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The `math` verifier."""
    return [
        Component(
            "math",
            "roll_verifier_math.verify:MathVerifier",
            summary="boxed or final answers, equal as mathematics",
            permissions=frozenset({"subprocess"}),
            scope="worker",
        )
    ]
