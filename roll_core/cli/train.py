"""`roll train CONFIG` and `roll resume RUN`."""

from __future__ import annotations

from pathlib import Path

import click

from roll_core.cli.context import host_for


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--overwrite", is_flag=True, help="Replace a run that already lies in the folder.")
@click.pass_context
def train(context: click.Context, config: Path, overrides: tuple[str, ...], overwrite: bool) -> None:
    """Train as the YAML file CONFIG says; OVERRIDES are key=value pairs like batch.prompts=16."""
    from roll_core.api import load_run, prepare_folder, run_to_end
    from roll_core.assembly import Assembly

    loaded, host = load_run(config, overrides, host=host_for(context, config, overrides))
    assembly = Assembly(loaded, host)
    click.echo(assembly.plan.render())
    prepare_folder(loaded, overwrite=overwrite)
    show_result(run_to_end(assembly), context)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--checkpoint", "step", type=int, help="Step of the checkpoint to go on from; the newest when left out.")
@click.option("--allow-plugin-changes", is_flag=True, help="Go on although plugins differ from those of the checkpoint.")
@click.pass_context
def resume(
    context: click.Context, run: Path, overrides: tuple[str, ...], step: int | None, allow_plugin_changes: bool
) -> None:
    """Go on with the run in the folder RUN from its newest checkpoint; OVERRIDES may raise steps."""
    from roll_core.api import find_checkpoint, load_run, run_to_end
    from roll_core.assembly import CONFIG_FILE, Assembly
    from roll_core.errors import ConfigError

    config = run / CONFIG_FILE
    if not config.is_file():
        raise ConfigError(f"{run} is no run's folder: it holds no {CONFIG_FILE}")
    overrides = (f"folder={run}", *overrides)
    loaded, host = load_run(config, overrides, host=host_for(context, config, overrides))
    assembly = Assembly(loaded, host)
    checkpoint = find_checkpoint(assembly, step)
    if not allow_plugin_changes:
        host.verify_manifest(checkpoint.read_state()["plugins"])
    show_result(run_to_end(assembly, checkpoint), context)


def show_result(trained: object, context: click.Context) -> None:
    """Print the table and where things are; exit with 130 when the run was interrupted."""
    from rich.console import Console

    from roll_core.api import TrainedRun

    if not isinstance(trained, TrainedRun):
        raise TypeError(f"expected a TrainedRun, got {type(trained).__name__}")
    console = Console()
    if trained.summary["domains"]:
        console.print(trained.table())
    console.print(f"{trained.result.steps} steps, {trained.result.train_seconds:.0f} s of training, in {trained.folder}")
    if trained.plot is not None:
        console.print(f"plot: {trained.plot}")
    if trained.result.status == "interrupted":
        console.print(f"interrupted; go on with: roll resume {trained.folder}")
        context.exit(130)
