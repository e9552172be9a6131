"""`roll models`: the model names that plugins offer."""

from __future__ import annotations

import click

from roll_core.cli.state import global_options
from roll_core.models import cache_folder, resolve_model


@click.group("models")
def models_group() -> None:
    """List and prepare models."""


@models_group.command("list")
def list_models() -> None:
    """Show every model name that an installed plugin offers."""
    for _, owner, component in global_options().host().components("models"):
        click.echo(f"{component.name}  ({owner})  {component.summary}")
    click.echo(f"prepared models are kept in {cache_folder()}")


@models_group.command("prepare")
@click.argument("name")
def prepare(name: str) -> None:
    """Prepare the model NAME now, instead of on first use, and print its folder."""
    click.echo(str(resolve_model(name, global_options().host(), place="roll models prepare")))
