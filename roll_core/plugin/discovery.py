"""Where plugins come from: the built-ins, a rollfile, objects passed from Python, and installed entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from roll_core.errors import PluginError, near_match
from roll_core.plugin.records import means
from roll_core.plugin.rollfile import ROLLFILE, load_rollfile, rollfile_version

GROUP = "roll"
"""Entry-point group of plugins."""
SELECT_VARIABLE = "ROLL_PLUGINS"
"""Environment variable: `auto` (or empty) loads every installed plugin, `none` none, `a,b` only those."""
BUILTIN = "builtin"
"""Name of the plugin that holds the engine's own components."""
CORE_DISTRIBUTION = "roll-core"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin before it is loaded."""

    name: str
    distribution: str
    version: str
    origin: str
    load: Callable[[], object]
    essential: bool = False
    installed: bool = False
    """Whether it comes from an entry point, hence is subject to `ROLL_PLUGINS`."""

    def is_called(self, name: str) -> bool:
        """Whether `name` means this plugin: its own name or its distribution's."""
        return means(name, self.name, self.distribution)


def candidates(rollfile: Path | None, extra: Sequence[object]) -> list[Candidate]:
    """Every plugin there is, in the order of loading: explicit ones first, then entry points by name."""
    found = [builtin_candidate()]
    if rollfile is not None:
        found.append(rollfile_candidate(rollfile))
    found.extend(object_candidate(thing) for thing in extra)
    found.extend(entry_point_candidates())
    return found


def builtin_candidate() -> Candidate:
    """The engine's own components, loaded like any other plugin; a run cannot be without them."""
    module = "roll_core.builtin.plugin"
    load = partial(importlib.import_module, module)
    return Candidate(BUILTIN, CORE_DISTRIBUTION, core_version(), module, load, essential=True)


def rollfile_candidate(path: Path) -> Candidate:
    """A rollfile. A missing file is found out on loading, like every other failure."""
    try:
        version = rollfile_version(path)
    except PluginError:
        version = ""
    return Candidate(ROLLFILE, ROLLFILE, version, str(path.resolve()), partial(load_rollfile, path))


def object_candidate(thing: object, name: str | None = None) -> Candidate:
    """A module or object with hook implementations, passed from Python."""
    own = name or getattr(thing, "roll_plugin_name", None) or getattr(thing, "__name__", None) or type(thing).__name__
    module = thing.__name__ if isinstance(thing, ModuleType) else type(thing).__module__
    return Candidate(str(own), "", str(getattr(thing, "__version__", "")), module, lambda: thing)


def entry_point_candidates() -> list[Candidate]:
    """Installed plugins, sorted by name."""
    found = []
    for point in importlib.metadata.entry_points(group=GROUP):
        distribution, version = _describe(point.dist)
        found.append(Candidate(point.name, distribution, version, point.value, point.load, installed=True))
    return sorted(found, key=lambda c: (c.name, c.distribution))


def core_version() -> str:
    """Version of roll-core; "unknown" when it runs from a source tree that was never installed."""
    try:
        return importlib.metadata.version(CORE_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def selected(select: str | None, found: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that may load: explicit ones, and of the installed ones what `ROLL_PLUGINS` allows.

    Args:
        select: the value of `ROLL_PLUGINS`; None reads the variable.
        found: what is there.

    Raises:
        PluginError: a listed plugin is not installed, or `auto` and `none` are mixed with names.
    """
    text = os.environ.get(SELECT_VARIABLE, "") if select is None else select
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names or names == ["auto"]:
        return list(found)
    if names == ["none"]:
        names = []
    if {"auto", "none"} & set(names):
        raise PluginError(f"{SELECT_VARIABLE}={text}: write 'auto', 'none' or a list of plugins, not a mixture")
    for name in names:
        if not any(c.is_called(name) for c in found):
            known = [c.name for c in found if c.installed]
            hint = near_match(name, known) or ";"
            raise PluginError(
                f"{SELECT_VARIABLE} lists plugin '{name}', which is not installed{hint} installed: "
                f"{', '.join(known) or 'none'}"
            )
    return [c for c in found if not c.installed or any(c.is_called(name) for name in names)]


def _describe(distribution: importlib.metadata.Distribution | None) -> tuple[str, str]:
    """Name and version of a distribution; both may be missing from damaged metadata."""
    return _field(distribution, "Name"), _field(distribution, "Version") or "unknown"


def _field(distribution: importlib.metadata.Distribution | None, key: str) -> str:
    """One field of the metadata; empty when it, or the whole file, is missing."""
    if distribution is None:
        return ""
    try:
        values = distribution.metadata.get_all(key)
    except (AttributeError, KeyError, OSError, TypeError, ValueError):  # what a missing file raises varies by version
        return ""
    return str(values[0]) if values else ""
