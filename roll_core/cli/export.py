"""`roll export RUN FOLDER`: a checkpoint's policy as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import click

from roll_core.cli.session import assemble_run


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--checkpoint", "step", type=int, help="Step of the checkpoint; the newest when left out.")
@click.pass_context
def export(context: click.Context, run: Path, folder: Path, *, step: int | None) -> None:
    """Write the policy of a checkpoint of RUN to FOLDER, adapters merged, tokenizer included."""
    assembly = assemble_run(context, run, ())
    from roll_core.api import export as export_model
    from roll_core.api import find_checkpoint

    checkpoint = find_checkpoint(assembly, step)
    export_model(assembly, checkpoint, folder)
    click.echo(f"{folder}: the policy of step {checkpoint.step}, for AutoModelForCausalLM.from_pretrained or vLLM")
