"""`roll scale RUN --replicas N`: rollout replicas join or leave a run that goes on."""

from __future__ import annotations

from pathlib import Path

import click

from roll_core.watch import ask_scale, read_status


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--replicas", type=click.IntRange(min=1), required=True, help="How many there should be.")
def scale(*, run: Path, replicas: int) -> None:
    """Ask the run in the folder RUN for another number of rollout replicas."""
    found = read_status(run)
    ask_scale(run, found, replicas)
    click.echo(f"asked for {replicas} replicas; taken up after step {found.step + 1}, see: roll status {run}")
