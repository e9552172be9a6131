"""The proof every worker gives before anything is built in it: its plugins and versions are the driver's."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roll_core.errors import PluginError
from roll_core.plugin.discovery import core_version
from roll_core.plugin.host import Host
from roll_core.plugin.rollfile import ROLLFILE

COMPARED = ("numpy", "torch", "transformers", "tokenizers")
"""Libraries whose objects cross processes, or whose results depend on their version."""
OPTIONAL = ("peft", "safetensors", "vllm")
"""The same, of libraries that not every role needs: compared where both processes have them."""
BUILDS = ("torch", "vllm", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
"""What has to be the same build on all processes of a role, since kernels and communication meet there. The driver may
have another one (it may have no device)."""


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """How a worker discovers the driver's plugins."""

    blocked: tuple[str, ...] = ()
    rollfile: Path | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What a process has."""

    versions: Mapping[str, str]
    """Python, the engine, and the libraries of `COMPARED` and `OPTIONAL` that are installed."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """`Host.manifest`."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why plugins failed to load, by name."""
    builds: Mapping[str, str] = field(default_factory=dict)
    """Full versions of what is installed of `BUILDS`, "2.13.0+cu130"."""


def choice_of(host: Host | None) -> PluginChoice | None:
    """How another process finds this host's plugins; None when there is no host to compare with."""
    if host is None:
        return None
    blocked = tuple(name for name, record in host.records.items() if record.state == "blocked")
    return PluginChoice(blocked, host.rollfile.resolve() if host.rollfile is not None else None)


def prove(choice: PluginChoice | None) -> Proof:
    """Look at this process; with a choice, discover its plugins."""
    if choice is None:
        return Proof(_versions(), builds=_installed(BUILDS))
    host = Host.discover(select="auto", blocked=choice.blocked, rollfile=choice.rollfile, enforce=False)
    failures = {name: record.error for name, record in host.records.items() if record.state == "failed"}
    return Proof(_versions(), host.manifest(), failures, _installed(BUILDS))


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
        and not (name in OPTIONAL and (name not in ours or name not in theirs.versions))
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


def check_builds(proofs: Mapping[str, Proof]) -> None:
    """Compare the processes of one role among themselves.

    Args:
        proofs: by the name of the process, in order of rank.

    Raises:
        PluginError: something of `BUILDS` differs; names who has what.
    """
    first = next(iter(proofs.values())).builds
    for name in BUILDS:
        if any(proof.builds.get(name) != first.get(name) for proof in proofs.values()):
            found = ", ".join(f"{who}: {proof.builds.get(name, 'not installed')}" for who, proof in proofs.items())
            raise PluginError(
                f"the processes of a role have different builds of {name} ({found}). Install the same on every machine"
            )


def _versions() -> dict[str, str]:
    libraries = _installed((*COMPARED, *OPTIONAL))
    own = {"python": ".".join(platform.python_version_tuple()[:2]), "roll-core": core_version()}
    return own | {name: version.partition("+")[0] for name, version in libraries.items()}


def _installed(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
