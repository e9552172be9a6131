"""Declares the components `judge` and `pairwise_judge`."""

from __future__ import annotations

from typing import Final

from roll_core.plugin.component import Component, Permission
from roll_core.plugin.hookspecs import hookimpl

_PERMISSIONS: Final[frozenset[Permission]] = frozenset({"network", "files", "gpu"})
"""An endpoint; the cache of replies and a local judge's weights; a local judge's device."""


@hookimpl
def roll_register_verifiers() -> list[Component]:
    """The verifiers of this package."""
    return [
        Component(
            "judge",
            "roll_verifier_judge.judge:JudgeVerifier",
            config="roll_verifier_judge.options:JudgeOptions",
            summary="a language model scores the response against a reference or a rubric",
            source="https://arxiv.org/abs/2306.05685",
            permissions=_PERMISSIONS,
        ),
        Component(
            "pairwise_judge",
            "roll_verifier_judge.pairwise:PairwiseVerifier",
            config="roll_verifier_judge.options:PairwiseOptions",
            summary="a language model compares the response with another one, in both orders",
            source="https://arxiv.org/abs/2306.05685",
            permissions=_PERMISSIONS,
        ),
    ]
