"""`roll config`: look at a configuration, and its schema for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from roll_core.config.explain import explain
from roll_core.config.json_schema import json_schema
from roll_core.config.load import check_config, load_config
from roll_core.plugin.host import Host


@click.group("config")
def config_group() -> None:
    """Explain a configuration, or print its schema."""


@config_group.command("explain")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Print every value of FILE with its source, and the sizes that follow.

    OVERRIDES are written key.path=value, as for `roll train`.
    """
    loaded = load_config(file, overrides)
    host = host_for(loaded.config.plugins.blocked, loaded.config.plugins.required, loaded.config.plugins.rollfile)
    explanation = explain(loaded, check_config(loaded, host), host)
    if as_json:
        click.echo(json.dumps(explanation.as_dict(), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(explanation.render()))


@config_group.command("schema")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
def schema_command(out: Path | None) -> None:
    """Print the JSON Schema of a run, the installed components' options included.

    Editors use it with a first line `# yaml-language-server: $schema=FILE`.
    """
    text = json.dumps(json_schema(Host.discover(enforce=False)), indent=2, ensure_ascii=False)
    if out is None:
        click.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        click.echo(f"wrote {out}")


def host_for(blocked: tuple[str, ...], required: tuple[str, ...], rollfile: str | None) -> Host:
    """The plugins that a configuration lets in."""
    return Host.discover(blocked=blocked, required=required, rollfile=Path(rollfile) if rollfile is not None else None)
