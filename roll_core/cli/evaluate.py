"""`roll eval CONFIG|RUN`: held-out accuracy of the start model or of a run's checkpoint."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from roll_core.cli.session import assemble, assemble_run


@click.command("eval")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--checkpoint", "step", type=int, help="Step of a run's checkpoint; the newest when left out.")
@click.option("--start", is_flag=True, help="Evaluate a run's start model instead of a checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def evaluate(
    context: click.Context, target: Path, overrides: tuple[str, ...], *, step: int | None, start: bool, as_json: bool
) -> None:
    """Evaluate TARGET on its held-out sets, greedily and sampled, with pass@k when eval.samples is above 1.

    TARGET is a config file (its model as it is) or a run's folder (its newest checkpoint).
    """
    assembly = (assemble_run if target.is_dir() else assemble)(context, target, overrides)
    from rich.console import Console

    from roll_core.api import evaluate as run_evaluation
    from roll_core.api import find_checkpoint
    from roll_core.report.summary import evaluation_table

    checkpoint = find_checkpoint(assembly, step) if target.is_dir() and not start else None
    results = asyncio.run(run_evaluation(assembly, checkpoint))
    if as_json:
        click.echo(json.dumps({name: r.as_dict() for name, r in results.items()}, indent=2))
        return
    what = f"step {checkpoint.step}" if checkpoint else "start"
    Console().print(evaluation_table(results, f"{assembly.config.name}, {what}"))
