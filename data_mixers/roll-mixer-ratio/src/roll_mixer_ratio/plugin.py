"""Declares the mixer. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


@hookimpl
def roll_register_mixers() -> list[Component]:
    """The mixer of this package."""
    return [
        Component(
            "ratio",
            "roll_mixer_ratio.mixer:RatioMixer",
            summary="fixed, temperature or scheduled shares, exact in the long run",
            source="Baruah et al. 1996 (proportionate progress); Tijdeman 1980 (chairman assignment)",
        )
    ]
