"""What the host knows about each plugin, and how a failure is put into words."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Any, Literal

from roll_core.errors import PluginError

State = Literal["loaded", "blocked", "failed"]


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin as the host found it."""

    name: str
    distribution: str
    """Name of the distribution; empty when there is none."""
    version: str
    """Version of the distribution ("unknown" without metadata); of a rollfile, the hash of its text."""
    state: State
    seconds: float = 0.0
    """Time taken to import the plugin and to ask what it declares."""
    error: str = ""
    """Why it failed, with file and line where known."""
    components: tuple[tuple[str, str], ...] = ()
    """(kind, name) of what it offers; of a failed plugin, what it managed to declare."""
    observes: tuple[str, ...] = ()
    """Observing hooks it implements."""
    essential: bool = False
    origin: str = ""
    """Path of the file, or the object, it comes from."""
    exception: BaseException | None = field(default=None, compare=False, repr=False)

    @property
    def stamp(self) -> str:
        """`distribution version`, as manifests record it."""
        return f"{self.distribution or '-'} {self.version or 'unknown'}"

    def likely_offers(self, name: str) -> bool:
        """Whether the plugin's or distribution's name suggests that it would offer a component `name`."""
        wanted = name.replace("-", "_")
        return any(
            own == wanted or own.endswith(f"_{wanted}")
            for own in (self.name.replace("-", "_"), self.distribution.replace("-", "_").lower())
        )

    def is_called(self, wanted: str) -> bool:
        """Whether `wanted` (a plugin's or a distribution's name) means this plugin."""
        return means(wanted, self.name, self.distribution)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-able copy."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "state": self.state,
            "seconds": round(self.seconds, 6),
            "error": self.error,
            "components": [{"kind": kind, "name": name} for kind, name in self.components],
            "observes": list(self.observes),
            "essential": self.essential,
            "origin": self.origin,
        }


def means(wanted: str, name: str, distribution: str) -> bool:
    """Whether `wanted` is a plugin's name, or a spelling of its distribution's (case and `-_.` do not matter)."""
    return wanted == name or (bool(distribution) and _normal(wanted) == _normal(distribution))


def describe_failure(error: BaseException, prefer: str = "") -> str:
    """Put an exception of a plugin into one line: type, text, and where it was raised.

    Args:
        error: the exception.
        prefer: path of the plugin's own file; the deepest frame in it is named rather than one in a library.
    """
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    text = said if isinstance(error, PluginError) else f"{type(error).__name__}: {said}".removesuffix(": ")
    where = _where(error, prefer)
    return f"{text} ({where})" if where and where not in text else text


def _where(error: BaseException, prefer: str) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen ")]
    own = [f for f in frames if prefer and f.filename == prefer] or [
        f for f in frames if "/roll_core/plugin/" not in f.filename and "/importlib/" not in f.filename
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
