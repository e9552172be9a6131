"""Declares the components `json_fields` and `word_limit`."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The verifiers of this package."""
    return [
        Component(
            "json_fields",
            "roll_verifier_json.fields:JsonFieldsVerifier",
            summary="the first JSON object of the response has the reference's fields",
            scope="worker",
        ),
        Component(
            "word_limit",
            "roll_verifier_json.words:WordLimitVerifier",
            summary="the response has no more (and no fewer) words than the reference allows",
            scope="worker",
        ),
    ]
