"""`roll train CONFIG` and `roll resume RUN`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from roll_core.cli.context import options_of
from roll_core.cli.session import assemble, assemble_run
from roll_core.cli.supervise import command_line, is_wanted, supervise

if TYPE_CHECKING:
    from roll_core.api import TrainedRun
    from roll_core.assembly import Assembly


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--overwrite", is_flag=True, help="Replace a run that already lies in the folder.")
@click.pass_context
def train(context: click.Context, config: Path, overrides: tuple[str, ...], *, overwrite: bool) -> None:
    """Train as the YAML file CONFIG says; OVERRIDES are key=value pairs like batch.prompts=16."""
    assembly = assemble(context, config, overrides)
    if is_wanted(assembly):
        anew = ("train", str(config), *overrides, "--overwrite")
        again = ("resume", str(assembly.config.run_folder))
        _watch_over(context, assembly, anew if overwrite else anew[:-1], again, anew)
    from roll_core.api import run_to_end

    click.echo("\n".join(assembly.plan.render()))
    _show(run_to_end(assembly, overwrite=overwrite, may_exit=True), context)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--checkpoint", "step", type=int, help="Step of the checkpoint to go on from; the newest when left out.")
@click.option("--allow-plugin-changes", is_flag=True, help="Go on although plugins differ from the checkpoint's.")
@click.pass_context
def resume(
    context: click.Context, run: Path, overrides: tuple[str, ...], *, step: int | None, allow_plugin_changes: bool
) -> None:
    """Go on with the run in the folder RUN from a checkpoint; OVERRIDES may raise `steps`."""
    assembly = assemble_run(context, run, overrides)
    if is_wanted(assembly):
        again = ("resume", str(run), *overrides, *(("--allow-plugin-changes",) if allow_plugin_changes else ()))
        _watch_over(context, assembly, again if step is None else (*again, "--checkpoint", str(step)), again)
    from roll_core.api import find_checkpoint, run_to_end

    checkpoint = find_checkpoint(assembly, step)
    if not allow_plugin_changes:
        assembly.host.verify_manifest(checkpoint.read_state()["plugins"])
    _show(run_to_end(assembly, checkpoint, may_exit=True), context)


def _watch_over(
    context: click.Context,
    assembly: Assembly,
    first: Sequence[str],
    again: Sequence[str],
    anew: Sequence[str] | None = None,
) -> NoReturn:
    """Let a driver of its own do the command, and resume it as often as it is killed; exit with its code."""
    options = options_of(context)
    commands = [command_line(options, *arguments) for arguments in (first, again, anew or again)]
    context.exit(supervise(assembly, *commands))


def _show(trained: TrainedRun, context: click.Context) -> None:
    """Print the table and where things are; exit with 130 when the run was interrupted."""
    from rich.console import Console

    from roll_core.cli.main import INTERRUPTED

    if trained.summary["domains"]:
        Console().print(trained.table())
    result = trained.result
    click.echo(f"{result.steps} steps, {result.train_seconds:.0f} s of training, in {trained.folder}")
    if trained.plot is not None:
        click.echo(f"plot: {trained.plot}")
    if result.status == "interrupted":
        click.echo(f"interrupted; go on with: roll resume {trained.folder}")
        context.exit(INTERRUPTED)
