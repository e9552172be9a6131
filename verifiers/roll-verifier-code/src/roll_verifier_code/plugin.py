"""Declares the component `code`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The verifier of this package."""
    return [
        Component(
            "code",
            "roll_verifier_code.verifier:CodeVerifier",
            summary="the program in the response passes the task's tests, which it runs under in a jail",
            permissions=frozenset({"code-exec", "subprocess"}),
            scope="worker",
        )
    ]
