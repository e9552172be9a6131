"""`roll config`: look at a configuration, and its schema for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from roll_core.cli.context import host_of
from roll_core.cli.session import assemble
from roll_core.config.explain import explain
from roll_core.config.json_schema import json_schema


@click.group("config")
def config_group() -> None:
    """Explain a configuration, or print its schema."""


@config_group.command("explain")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def explain_command(context: click.Context, file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Print every value of FILE with its source, the sizes that follow, and the models that will be loaded.

    OVERRIDES are written key.path=value, as for `roll train`.
    """
    assembly = assemble(context, file, overrides)
    explanation, flow = explain(assembly.loaded, assembly.plan, assembly.host), assembly.flow.as_dict()
    if as_json:
        click.echo(json.dumps(explanation.as_dict() | {"dataflow": flow}, indent=2, ensure_ascii=False))
        return
    click.echo("\n".join(explanation.render()))
    click.echo("\n# dataflow")
    for name, entries in flow.items():
        click.echo(f"#   {name:<14} {', '.join(entries) or 'none'}")


@config_group.command("schema")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.pass_context
def schema_command(context: click.Context, out: Path | None) -> None:
    """Print the JSON Schema of a run, the installed components' options included.

    Editors use it with a first line `# yaml-language-server: $schema=FILE`.
    """
    text = json.dumps(json_schema(host_of(context, enforce=False)), indent=2, ensure_ascii=False)
    if out is None:
        click.echo(text)
    else:
        try:
            out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(out), str(error)) from error
        click.echo(f"wrote {out}")
