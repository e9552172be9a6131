"""`roll models`: the model names that plugins offer."""

from __future__ import annotations

import click

from roll_core.cli.context import host_of
from roll_core.models import cache_folder, resolve_model


@click.group("models")
def models_group() -> None:
    """List and prepare models."""


@models_group.command("list")
@click.pass_context
def list_models(context: click.Context) -> None:
    """Show every model name that an installed plugin offers."""
    for _, owner, component in host_of(context).components("models"):
        click.echo(f"{component.name}  ({owner})  {component.summary}")
    click.echo(f"prepared models are kept in {cache_folder()}")


@models_group.command("prepare")
@click.argument("name")
@click.pass_context
def prepare(context: click.Context, name: str) -> None:
    """Prepare the model NAME now, instead of on first use, and print its folder."""
    click.echo(str(resolve_model(name, host_of(context), place="roll models prepare")))
