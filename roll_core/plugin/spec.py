"""`ComponentSpec`: a component on its way to another process."""

from __future__ import annotations

import importlib.metadata
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.errors import ComponentError, PluginError
from roll_core.plugin import byvalue
from roll_core.plugin.building import Plan, as_component, check_object
from roll_core.plugin.hookspecs import SINGULAR
from roll_core.plugin.lift import FunctionFactory
from roll_core.plugin.records import PluginRecord
from roll_core.plugin.rollfile import load_rollfile, rollfile_module

if TYPE_CHECKING:
    from roll_core.plugin.host import Host


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """Everything a fresh process needs to build a component, without discovering plugins again."""

    kind: str
    name: str
    """Component name, for messages and verdicts."""
    payload: bytes = field(repr=False)
    """Pickle of (a `Component`, its options), or of (a ready object, None). What a component names as "module:attr" is
    imported on building, and nothing else."""
    place: str = ""
    owner: str = ""
    """Plugin that offers the component; empty for an object passed from Python."""
    version: str = ""
    """Version of that plugin."""
    distribution: str = ""
    """Distribution of that plugin; empty when there is none."""
    rollfile: Path | None = None
    """Loaded first, when the payload refers to it."""
    module: str = field(default="", repr=False)
    """Module name of the rollfile as the driver loaded it; another name means that the file has changed since."""

    def build(self, host: Host | None = None, **context: Any) -> Any:
        """Build the component.

        Args:
            host: plugins of this process, to be compared with the driver's; None compares the installed distribution.
            context: what the engine supplies to factories of this kind.

        Raises:
            PluginError: the rollfile changed since the spec was made, or `host` has another version of the plugin.
            ComponentError: the component cannot be rebuilt here.
        """
        if host is not None and self.owner:
            here = host.records.get(self.owner)
            if here is None or (here.state, here.version) != ("loaded", self.version):
                found = "not installed" if here is None else f"{here.state}, version {here.version}"
                raise PluginError(f"plugin '{self.owner}' is {found} here; the driver has version {self.version}")
        if host is None and self.distribution:
            installed = _installed_version(self.distribution)
            if installed != self.version:
                raise PluginError(
                    f"{self.distribution} is {installed} in this process, the driver has version {self.version}"
                )
        if self.rollfile is not None:
            if rollfile_module(self.rollfile) != self.module:
                raise PluginError(f"rollfile '{self.rollfile}' has changed since the run started; start it again")
            load_rollfile(self.rollfile)
        try:
            thing, options = pickle.loads(self.payload)  # noqa: S301  # made by this run's own driver
        except Exception as error:
            raise ComponentError(
                f"{SINGULAR[self.kind]} '{self.name}' cannot be rebuilt in this process: "
                f"{type(error).__name__}: {error}"
            ) from error
        return thing if options is None else Plan(self.kind, thing, self.place).build(options, context)


def make_spec(
    kind: str,
    use: Any,
    options: Mapping[str, Any],
    *,
    place: str = "",
    owner: PluginRecord | None = None,
    rollfile: Path | None = None,
) -> ComponentSpec:
    """Check options and pack a component, or an object that is one.

    Args:
        kind: plural, as in `contracts.KINDS`.
        use: a `Component`, or what a Python caller passed.
        options: the component's options.
        place: where this was written, as a dotted config path.
        owner: the plugin that offers it, if any.
        rollfile: the host's rollfile, if any.

    Raises:
        ConfigError: the options are wrong.
        ComponentError: the component cannot be pickled.
    """
    content, name = _content(kind, use, options, place)
    try:
        payload = byvalue.dumps(content)
    except Exception as error:
        raise ComponentError(
            f"{SINGULAR[kind]} '{name}' cannot be sent to a worker process ({type(error).__name__}: {error}); define "
            "it at the top level of a file, without open files, locks or models in it"
        ) from error
    module = rollfile_module(rollfile) if rollfile is not None else ""
    if not module or module.encode() not in payload:
        rollfile, module = None, ""
    stamp = (owner.name, owner.version, _real_distribution(owner)) if owner is not None else ("", "", "")
    return ComponentSpec(kind, name, payload, place, *stamp, rollfile, module)


def _content(kind: str, use: Any, options: Mapping[str, Any], place: str) -> tuple[tuple[Any, Any], str]:
    """What to pickle, and the component's name. Lifted functions are bound here, where their annotations are known."""
    component = as_component(kind, use)
    if component is None:
        return (check_object(kind, use, options, place), None), type(use).__name__
    plan = Plan(kind, component, place)
    if isinstance(component.factory, FunctionFactory):
        return (plan.build(options, {}), None), component.name
    plan.validate(options, {})
    return (component, dict(options)), component.name


def _real_distribution(owner: PluginRecord) -> str:
    """The owner's distribution; empty for a rollfile or an object, which no package installed."""
    return owner.distribution if _installed_version(owner.distribution or "-") == owner.version else ""


def _installed_version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
