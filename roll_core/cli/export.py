"""`roll export RUN FOLDER`: the trained weights as a folder that `from_pretrained` and inference engines load."""

from __future__ import annotations

from pathlib import Path

import click

from roll_core.cli.session import assemble_run


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--checkpoint", "step", type=int, help="Step of the checkpoint to export; the newest when left out.")
@click.pass_context
def export(context: click.Context, run: Path, folder: Path, *, step: int | None) -> None:
    """Write the weights of RUN (a run's folder) to FOLDER, with tokenizer, adapters merged."""
    assembly = assemble_run(context, run, ())
    from roll_core.api import export as export_weights
    from roll_core.api import find_checkpoint

    checkpoint = find_checkpoint(assembly, step)
    click.echo(f"wrote {export_weights(assembly, checkpoint, folder)} (step {checkpoint.step})")
