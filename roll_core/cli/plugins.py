"""`roll plugins`: what is installed, what each plugin offers, and why a plugin failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from roll_core.cli.context import host_of
from roll_core.cli.lazy import LazyCommand, LazyGroup

if TYPE_CHECKING:
    from roll_core.plugin.component import Component
    from roll_core.plugin.host import Host
    from roll_core.plugin.records import PluginRecord

_STYLES = {"loaded": "green", "blocked": "yellow", "failed": "bold red"}


@click.group(
    cls=LazyGroup,
    lazy={
        "check": LazyCommand("roll_core.cli.plugins_check:check", "Run the conformance kit over installed components."),
        "rates": LazyCommand("roll_core.cli.plugins_rates:rates", "Measure error rates of verifiers."),
        "new": LazyCommand("roll_core.cli.plugins_new:new", "Write the package of a new plugin."),
    },
)
def plugins() -> None:
    """List, show, check, measure and create plugins."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--kind", help="Only plugins that offer this kind of component, such as verifiers.")
@click.pass_context
def list_plugins(context: click.Context, as_json: bool, kind: str | None) -> None:
    """List plugins, and why one failed."""
    from roll_core.plugin.registry import check_kind

    host = host_of(context, enforce=False)
    if kind is not None:
        check_kind(kind)
    records = sorted(host.records.values(), key=lambda r: (not r.essential, r.name))
    records = [r for r in records if kind is None or any(k == kind for k, _ in r.components)]
    if as_json:
        click.echo(json.dumps([r.as_dict() for r in records], indent=2))
    else:
        _print_table(records)


@plugins.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def show(context: click.Context, name: str, as_json: bool) -> None:
    """Show a plugin, or a component with its options. NAME may be `owner/component`."""
    from roll_core.errors import unknown_name

    host = host_of(context, enforce=False)
    owned = [r for r in host.records.values() if r.is_called(name)]
    owner, _, bare = name.rpartition("/")
    found = [
        (kind, plugin, component)
        for kind, plugin, component in host.components()
        if component.name == bare and (not owner or host.records[plugin].is_called(owner))
    ]
    if not owned and not found:
        known = {*host.records, *(component.name for _, _, component in host.components())}
        raise unknown_name("plugin or component", name, known)
    entries: list[dict[str, Any]] = [{"plugin": r.as_dict()} for r in owned]
    entries += [{"component": _component_entry(host, *item)} for item in found]
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    for entry in entries:
        _print_entry(next(iter(entry.values())))


def _component_entry(host: Host, kind: str, owner: str, component: Component) -> dict[str, Any]:
    """Everything known about a component; a factory that cannot be imported is reported, not raised."""
    from roll_core.errors import RollError

    entry: dict[str, Any] = {
        "name": component.name,
        "kind": kind,
        "plugin": owner,
        "distribution": host.records[owner].distribution,
        "version": host.records[owner].version,
        "summary": component.summary,
        "source": component.source,
        "permissions": sorted(component.permissions),
        "scope": component.scope,
        "since": component.since,
        "factory": component.factory if isinstance(component.factory, str) else repr(component.factory),
    }
    try:
        model = host.config_model(kind, f"{owner}/{component.name}")
    except RollError as error:
        return {**entry, "error": str(error)}
    from roll_core.plugin.validation import field_type

    entry["options"] = [
        {
            "name": name,
            "type": field_type(model, name),
            "required": field.is_required(),
            "help": field.description or "",
        }
        for name, field in model.model_fields.items()
    ]
    return entry


def _print_table(records: Sequence[PluginRecord]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("plugin", "distribution", "version", "state", "components"):
        table.add_column(column, overflow="fold")
    table.add_column("load", justify="right", no_wrap=True)
    for record in records:
        load = "" if record.state == "blocked" else f"{record.seconds * 1000:.1f} ms"
        table.add_row(
            Text(record.name),
            Text(record.distribution),
            Text(record.version),
            Text(record.state, style=_STYLES[record.state]),
            Text(_counts(record)),
            load,
        )
    console = Console(soft_wrap=False)
    console.print(table)
    for record in records:
        if record.state == "failed":
            console.print(Text(f"{record.name} failed: {record.error}", style="red"), soft_wrap=True)


def _counts(record: PluginRecord) -> str:
    """Names of a few components by kind, counts of many: "verifiers: math; policy_losses: 9"."""
    by_kind: dict[str, list[str]] = {}
    for kind, name in record.components:
        by_kind.setdefault(kind, []).append(name)
    parts = [f"{kind}: {', '.join(names) if len(names) <= 3 else len(names)}" for kind, names in by_kind.items()]
    if record.observes:
        parts.append("observes")
    return "; ".join(parts)


def _print_entry(entry: dict[str, Any]) -> None:
    for key, value in entry.items():
        if key == "options":
            click.echo("options:" if value else "options: none")
            for option in value:
                click.echo(
                    f"  {option['name']}: {option['type']}" + (f"  # {option['help']}" if option["help"] else "")
                )
        elif key == "components":
            click.echo("components:" if value else "components: none")
            for component in value:
                click.echo(f"  {component['kind']}/{component['name']}")
        elif value not in ("", [], None):
            click.echo(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
    click.echo("")
