"""Which component a name means, and what to say when it means none or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roll_core.errors import ConfigError, PluginError, UnknownNameError, unknown_name
from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import DECLARING, SINGULAR
from roll_core.plugin.records import PluginRecord


@dataclass(frozen=True, slots=True)
class Offer:
    """A component, its kind, and the plugin that offers it."""

    kind: str
    owner: str
    component: Component


def check_kind(kind: str) -> None:
    """Refuse a kind that does not exist.

    Raises:
        UnknownNameError: always with the kinds there are.
    """
    if kind not in DECLARING:
        raise unknown_name("kind of component", kind, DECLARING)


def find(offers: Sequence[Offer], records: Mapping[str, PluginRecord], kind: str, name: str, place: str = "") -> Offer:
    """Return the offer that `name` (or `owner/name`) means.

    Raises:
        UnknownNameError: nothing of this kind has the name.
        ConfigError: two plugins offer it.
        PluginError: the plugin that offers it failed to load, or is blocked.
    """
    check_kind(kind)
    owner, _, bare = name.rpartition("/")
    matches = [o for o in offers if o.kind == kind and o.component.name == bare and _owned(o, owner, records)]
    if len(matches) == 1:
        return matches[0]
    where = f" ({place})" if place else ""
    if matches:
        names = sorted(f"{o.owner}/{bare}" for o in matches)
        raise ConfigError(
            f"{SINGULAR[kind]} '{name}'{where} is offered by {len(matches)} plugins: {', '.join(names)}; "
            "write one of these instead"
        )
    raise _missing(offers, records, kind, (owner, bare), place)


def _owned(offer: Offer, owner: str, records: Mapping[str, PluginRecord]) -> bool:
    return not owner or records[offer.owner].is_called(owner)


def _missing(
    offers: Sequence[Offer], records: Mapping[str, PluginRecord], kind: str, asked: tuple[str, str], place: str
) -> ConfigError | PluginError:
    owner, bare = asked
    what, where = SINGULAR[kind], f" ({place})" if place else ""
    absent = [r for r in records.values() if r.state != "loaded"]
    for record in absent:
        offered = (kind, bare) in record.components
        if record.is_called(owner) or (not owner and (offered or record.likely_offers(bare))):
            error = PluginError(f"{what} '{bare}'{where}: plugin '{record.name}' {_why(record)}")
            error.__cause__ = record.exception
            return error
    mine = [o for o in offers if o.kind == kind]
    if owner:
        names = [f"{o.owner}/{o.component.name}" for o in mine]
        if not any(r.is_called(owner) for r in records.values()):
            return unknown_name("plugin", owner, records, place)
        return unknown_name(what, f"{owner}/{bare}", names, place)
    text = str(unknown_name(what, bare, {o.component.name for o in mine}, place))
    return UnknownNameError(text + _other_kinds(offers, bare) + _absent(absent))


def _other_kinds(offers: Iterable[Offer], bare: str) -> str:
    kinds = sorted({SINGULAR[o.kind] for o in offers if o.component.name == bare})
    named = [f"an {kind}" if kind[0] in "aeiou" else f"a {kind}" for kind in kinds]
    return f"; '{bare}' is {' and '.join(named)}" if named else ""


def _absent(records: Iterable[PluginRecord]) -> str:
    notes = [f"plugin '{r.name}' {_why(r)}" for r in records]
    return f"; it may belong to a plugin that is not loaded: {'; '.join(notes)}" if notes else ""


def _why(record: PluginRecord) -> str:
    if record.state == "failed":
        return f"failed to load: {record.error}"
    return "is blocked (by ROLL_PLUGINS, --plugin no:NAME or plugins.blocked)"
