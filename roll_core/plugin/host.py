"""The plugin host: finds plugins, keeps them apart, and hands out their components.

A plugin that fails is listed with its error and unregistered whole; asking for what it offers raises that error. No
plugin's failure ever hides another's components. Installed plugins are trusted code: they run with the user's rights
from the moment of discovery; `ROLL_PLUGINS` is the allow-list.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from roll_core.errors import ComponentError, PluginError, near_match
from roll_core.plugin.building import Plan, as_component, check_object
from roll_core.plugin.component import Component
from roll_core.plugin.discovery import Candidate, candidates, object_candidate, selected
from roll_core.plugin.hookspecs import DECLARING, OBSERVING
from roll_core.plugin.loading import check_hooks, declarations, implementations, new_manager, observed
from roll_core.plugin.records import PluginRecord, describe_failure
from roll_core.plugin.registry import Offer, check_kind, find
from roll_core.plugin.rollfile import ROLLFILE
from roll_core.plugin.spec import ComponentSpec, make_spec

if TYPE_CHECKING:
    import pydantic

_log = logging.getLogger(__name__)


class Host:
    """Every plugin of this process, loaded, blocked or failed. Build it with `discover`."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        """Raise where an observing hook fails instead of logging and counting."""
        self.observer_errors: Counter[str] = Counter()
        """Failed calls of observing hooks, by plugin."""
        self.rollfile: Path | None = None
        self._manager = new_manager()
        self._records: dict[str, PluginRecord] = {}
        self._offers: list[Offer] = []
        self._configured: list[dict[str, Any]] = []

    @classmethod
    def discover(
        cls,
        *,
        select: str | None = None,
        blocked: Sequence[str] = (),
        required: Sequence[str] = (),
        rollfile: Path | None = None,
        extra: Sequence[object] = (),
        strict: bool = False,
        enforce: bool = True,
    ) -> Self:
        """Load every plugin that may take part.

        Args:
            select: `auto`, `none`, or the installed plugins to load, comma-separated; None reads `ROLL_PLUGINS`.
                The built-ins, a rollfile and `extra` are not subject to it.
            blocked: plugins (or distributions) not to load.
            required: plugins (or distributions) the run cannot be without. A rollfile that is given is required.
            rollfile: a Python file to load as plugin `rollfile`.
            extra: modules or objects with hook implementations.
            strict: raise where an observing hook fails.
            enforce: False leaves every failure to the records (for listing); True logs failures and raises those of
                required plugins.

        Raises:
            PluginError: an essential plugin is blocked or failed, a required one is missing, blocked or failed, or
                `select` names a plugin that is not installed.
        """
        host = cls(strict=strict)
        host.rollfile = rollfile
        found = candidates(rollfile, extra)
        allowed = selected(select, found)
        _check_blocked(blocked, found)
        wanted = [c for c in found if c in allowed and not any(c.is_called(name) for name in blocked)]
        for candidate in wanted:
            host._load(candidate)
        for candidate in found:
            if candidate not in wanted:
                name = host._free_name(candidate)
                host._records[name] = replace(_record(candidate, "blocked"), name=name)
        if enforce:
            for record in host._records.values():
                if record.state == "failed":
                    _log.warning("plugin '%s' failed to load: %s", record.name, record.error)
            host._enforce([*required, *([ROLLFILE] if rollfile is not None else [])])
        return host

    @property
    def records(self) -> Mapping[str, PluginRecord]:
        """Every plugin by name, in the order of loading."""
        return MappingProxyType(self._records)

    def register(self, plugin: object, name: str | None = None) -> PluginRecord:
        """Load a module or object with hook implementations into this host; it sees earlier `roll_configure` calls."""
        return self._load(object_candidate(plugin, name))

    # --- components ---------------------------------------------------------------------------------------------------

    def component(self, kind: str, name: str, place: str = "") -> Component:
        """The component that `name` (or `owner/name`) means.

        Args:
            kind: plural, as in `contracts.KINDS`.
            name: what the config says; the owner is a plugin or a distribution.
            place: where it was written, as a dotted config path.

        Raises:
            UnknownNameError: nothing of this kind has the name; near matches and installed names are listed.
            ConfigError: several plugins offer it.
            PluginError: the plugin that offers it failed to load, or is blocked.
        """
        return find(self._offers, self._records, kind, name, place).component

    def components(self, kind: str | None = None) -> list[tuple[str, str, Component]]:
        """(kind, plugin, component) of everything on offer, sorted by kind and name."""
        if kind is not None:
            check_kind(kind)
        order = {k: i for i, k in enumerate(DECLARING)}
        chosen = [o for o in self._offers if kind in (None, o.kind)]
        chosen.sort(key=lambda o: (order[o.kind], o.component.name, o.owner))
        return [(o.kind, o.owner, o.component) for o in chosen]

    def version_of(self, kind: str, name: str) -> str:
        """Version of the plugin that offers a component."""
        return self._records[find(self._offers, self._records, kind, name).owner].version

    def config_model(self, kind: str, name: str, place: str = "") -> type[pydantic.BaseModel]:
        """The pydantic model of a component's options.

        Raises:
            ComponentError: the component's code cannot be imported.
        """
        return Plan(kind, self.component(kind, name, place), place).config_model()

    def build(self, kind: str, use: Any, options: Mapping[str, Any], *, place: str, **context: Any) -> Any:
        """Build a component.

        Args:
            kind: plural, as in `contracts.KINDS`.
            use: a component's name; or, from Python, a `Component`, a class, a plain function (lifted to the kind's
                contract), or a ready object (taken as it is).
            options: the component's options.
            place: where this was written, as a dotted config path.
            context: what the engine supplies to factories of this kind (`contracts.CONTEXT`).

        Raises:
            ConfigError: unknown component, or options that do not fit it.
            PluginError: the plugin that offers it failed to load.
            ComponentError: the component's code raised.
        """
        check_kind(kind)
        chosen = self.component(kind, use, place) if isinstance(use, str) else as_component(kind, use)
        if chosen is None:
            return check_object(kind, use, options, place)
        return Plan(kind, chosen, place).build(options, context)

    def spec(self, kind: str, use: Any, options: Mapping[str, Any], *, place: str = "") -> ComponentSpec:
        """Check a component's options and pack it for another process (see `build` for the arguments).

        Raises:
            ConfigError: unknown component, or options that do not fit it.
            ComponentError: it cannot be pickled.
        """
        check_kind(kind)
        owner = None
        if isinstance(use, str):
            offer = find(self._offers, self._records, kind, use, place)
            use, owner = offer.component, self._records[offer.owner]
        return make_spec(kind, use, options, place=place, owner=owner, rollfile=self.rollfile)

    # --- hooks --------------------------------------------------------------------------------------------------------

    def notify(self, hook: str, **kwargs: Any) -> None:
        """Call an observing hook of every plugin. `roll_configure` also reaches plugins that are registered later.

        A plugin's exception is logged with its name and counted in `observer_errors`; the others are called all the
        same.

        Raises:
            PluginError: there is no such hook, or the arguments are not the hook's.
            ComponentError: under strict, an implementation raised (all have been called).
        """
        if hook not in OBSERVING:
            raise PluginError(f"no observing hook named '{hook}'{near_match(hook, OBSERVING)}")
        expected = set(getattr(self._manager.hook, hook).spec.argnames)
        if set(kwargs) != expected:
            raise PluginError(f"hook '{hook}' takes {sorted(expected)}, got {sorted(kwargs)}")
        if hook == "roll_configure":
            self._configured.append(kwargs)
        self._call(hook, kwargs)

    def _call(self, hook: str, kwargs: Mapping[str, Any], only: str | None = None) -> None:
        first: ComponentError | None = None
        for name, function in implementations(self._manager, hook):
            if only not in (None, name):
                continue
            try:
                function(**kwargs)
            except Exception as error:  # noqa: BLE001  # counted, logged, and raised under strict
                self.observer_errors[name] += 1
                _log.exception("hook %s of plugin '%s' failed", hook, name)
                if first is None:
                    first = ComponentError(f"hook '{hook}' of plugin '{name}' failed: {describe_failure(error)}")
                    first.__cause__ = error
        if first is not None and self.strict:
            raise first

    # --- proof --------------------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, str]:
        """`distribution version` of every loaded plugin, for checkpoints and for workers to prove theirs."""
        return {name: r.stamp for name, r in sorted(self._records.items()) if r.state == "loaded"}

    def verify_manifest(self, theirs: Mapping[str, str]) -> None:
        """Compare another process's (or a checkpoint's) plugins with ours.

        Raises:
            PluginError: they differ; every difference is named.
        """
        ours = self.manifest()
        differences = [
            f"'{name}' is {ours.get(name, 'not loaded')} here and {theirs.get(name, 'not loaded')} there"
            for name in sorted({*ours, *theirs})
            if ours.get(name) != theirs.get(name)
        ]
        if differences:
            raise PluginError(f"plugins differ: {'; '.join(differences)}")

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load(self, candidate: Candidate) -> PluginRecord:
        """Load one plugin; a failure of any sort ends in its record."""
        start = time.perf_counter()
        origin, plugin = candidate.origin, None
        found: list[tuple[str, Component]] = []
        name = self._free_name(candidate)
        try:
            if name != candidate.name:
                taken = self._records[candidate.name]
                raise PluginError(  # noqa: TRY301  # every reason to fail is recorded in one place
                    f"the name '{candidate.name}' is taken by {taken.distribution or taken.origin}"
                )
            plugin = candidate.load()
            origin = str(getattr(plugin, "__file__", None) or origin)
            check_hooks(self._manager, plugin)
            self._manager.register(plugin, name)
            found, errors = declarations(self._manager, plugin, name)
            if errors:
                raise errors[0]  # noqa: TRY301
        except (Exception, SystemExit) as error:  # noqa: BLE001  # reported in the record and on use
            if plugin is not None and self._manager.get_plugin(name) is plugin:
                self._manager.unregister(name=name)
            record = replace(
                _record(candidate, "failed", origin), error=describe_failure(error, origin), exception=error
            )
        else:
            self._offers.extend(Offer(kind, name, component) for kind, component in found)
            record = replace(_record(candidate, "loaded", origin), observes=observed(self._manager, plugin))
        names = tuple((kind, component.name) for kind, component in found)
        record = replace(record, name=name, components=names, seconds=time.perf_counter() - start)
        self._records[name] = record
        if record.state == "loaded":
            for kwargs in self._configured:
                self._call("roll_configure", kwargs, only=name)
        return record

    def _free_name(self, candidate: Candidate) -> str:
        name, count = candidate.name, 1
        while name in self._records:
            count += 1
            name = f"{candidate.name}@{candidate.distribution or candidate.origin}" + (f"#{count}" if count > 2 else "")
        return name

    def _enforce(self, required: Sequence[str]) -> None:
        wanted = [(r.name, [r]) for r in self._records.values() if r.essential]
        wanted += [(name, [r for r in self._records.values() if r.is_called(name)]) for name in required]
        for name, records in wanted:
            if not records:
                hint = near_match(name, self._records) or ";"
                known = ", ".join(sorted(self._records))
                raise PluginError(f"required plugin '{name}' is not installed{hint} installed: {known}")
            for record in records:
                if record.state == "failed":
                    raise PluginError(f"plugin '{record.name}' failed to load: {record.error}") from record.exception
                if record.state == "blocked":
                    raise PluginError(f"required plugin '{record.name}' is blocked; unblock it, or require it no more")


def _record(candidate: Candidate, state: Any, origin: str = "") -> PluginRecord:
    return PluginRecord(
        candidate.name,
        candidate.distribution,
        candidate.version,
        state,
        essential=candidate.essential,
        origin=origin or candidate.origin,
    )


def _check_blocked(blocked: Sequence[str], found: Sequence[Candidate]) -> None:
    """Refuse to block essential plugins; a name that blocks nothing may be a slip, so it is reported."""
    for name in blocked:
        meant = [c for c in found if c.is_called(name)]
        essential = [c.name for c in meant if c.essential]
        if essential:
            raise PluginError(f"plugin '{essential[0]}' is essential and cannot be blocked")
        if not meant:
            _log.warning("blocked plugin '%s' is not installed%s", name, near_match(name, [c.name for c in found]))
