"""The proof every worker gives before anything is built in it: its plugins and versions are the driver's."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roll_core.errors import PluginError
from roll_core.plugin.discovery import core_version
from roll_core.plugin.host import Host
from roll_core.plugin.rollfile import ROLLFILE

COMPARED = ("numpy", "torch", "transformers")
"""Libraries whose objects cross processes, or whose results depend on their version."""


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """How a worker discovers the driver's plugins."""

    blocked: tuple[str, ...] = ()
    rollfile: Path | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What a process has."""

    versions: Mapping[str, str]
    """Python, the engine, and the libraries of `COMPARED` that are installed."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """`Host.manifest`."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why plugins failed to load, by name."""


def choice_of(host: Host | None) -> PluginChoice | None:
    """How another process finds this host's plugins; None when there is no host to compare with."""
    if host is None:
        return None
    blocked = tuple(name for name, record in host.records.items() if record.state == "blocked")
    return PluginChoice(blocked, host.rollfile.resolve() if host.rollfile is not None else None)


def prove(choice: PluginChoice | None) -> Proof:
    """Look at this process; with a choice, discover its plugins."""
    if choice is None:
        return Proof(_versions())
    host = Host.discover(select="auto", blocked=choice.blocked, rollfile=choice.rollfile, enforce=False)
    failures = {name: record.error for name, record in host.records.items() if record.state == "failed"}
    return Proof(_versions(), host.manifest(), failures)


def check_proof(theirs: Proof, host: Host | None, who: str) -> None:
    """Compare a worker's proof with this process.

    Plugins given to the driver as Python objects are left out: no other process can have them, and what they offer
    travels by value.

    Raises:
        PluginError: something differs; every difference is named.
    """
    ours = _versions()
    differences = [
        f"{name} is {ours.get(name, 'not installed')} here and {theirs.versions.get(name, 'not installed')} there"
        for name in sorted({*ours, *theirs.versions})
        if ours.get(name) != theirs.versions.get(name)
    ]
    if differences:
        raise PluginError(f"{who}: versions differ: {'; '.join(differences)}. Install the same on every machine")
    if host is None:
        return
    objects = {name: stamp for name, stamp in host.manifest().items() if _is_object(host, name)}
    try:
        host.verify_manifest({**theirs.plugins, **objects})
    except PluginError as error:
        why = "".join(f"; there, '{name}' failed: {text}" for name, text in theirs.failures.items())
        raise PluginError(f"{who}: {error}{why}") from None


def _is_object(host: Host, name: str) -> bool:
    return not host.records[name].distribution and name != ROLLFILE


def _versions() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "roll-core": core_version()}
    for name in COMPARED:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
