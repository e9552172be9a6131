"""Components of a run by the names in its config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.config.schema import ComponentRef
from roll_core.models import resolve_model
from roll_core.rooms import Stateful

if TYPE_CHECKING:
    from roll_core.plugin.host import Host

_STATEFUL = frozenset({"filters", "rewards", "advantages", "policy_losses"})
"""Kinds whose components may keep state in the driver; it goes into checkpoints (the mixer's goes with the draw)."""


class Builder:
    """Builds components, and remembers those that keep state.

    Args:
        host: the installed plugins.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.stateful: dict[str, Stateful] = {}
        """Components with state, by the config path they were named at."""

    def build(self, kind: str, ref: ComponentRef, place: str, **context: Any) -> Any:
        """The component that the config names at `place`."""
        built = self.host.build(kind, ref.use, ref.options, place=place, **context)
        if kind in _STATEFUL and hasattr(built, "state_dict") and hasattr(built, "load_state_dict"):
            self.stateful[place] = built
        return built

    def model(self, name: str, place: str) -> Path:
        """The local folder of the model that the config names at `place`."""
        return resolve_model(name, self.host, place=place)
