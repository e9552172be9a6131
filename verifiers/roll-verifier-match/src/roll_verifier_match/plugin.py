"""Declares the components `exact`, `regex` and `json_schema`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The verifiers of this package."""
    return [
        Component(
            "exact",
            "roll_verifier_match.exact:ExactVerifier",
            summary="the answer is the reference's text, apart from what the options leave out",
            scope="worker",
        ),
        Component(
            "regex",
            "roll_verifier_match.pattern:RegexVerifier",
            summary="the answer matches the reference's regular expression, in bounded time",
            scope="worker",
        ),
        Component(
            "json_schema",
            "roll_verifier_match.schema:JsonSchemaVerifier",
            summary="the response's JSON is valid under the reference's JSON Schema",
            scope="worker",
        ),
    ]
