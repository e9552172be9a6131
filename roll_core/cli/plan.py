"""`roll plan`: who would get which devices, how much memory each needs, and the batch arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import click

from roll_core.cli.context import host_for, options_of


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--gpus", metavar="BUDGET", help="Devices, for instance 16x80GB or 2x24GB+8x80GB (sets cluster.gpus).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plan_command(
    context: click.Context, file: Path, overrides: tuple[str, ...], gpus: str | None, *, as_json: bool
) -> None:
    """Print placement, memory and batch sizes of the run FILE describes, without loading or starting anything.

    OVERRIDES are written key.path=value, as for `roll train`. Memory is estimated from the model's config.json and
    the run's settings; the formulas are in the documentation of `roll_core.cluster.memory`.
    """
    from roll_core.cluster.choice import budget_of, local_devices
    from roll_core.cluster.demand import needs_of, prepared_folder
    from roll_core.cluster.placement import solve
    from roll_core.cluster.placement_report import placement_dict, render_placement
    from roll_core.config.load import load_config
    from roll_core.config.plan import size_warnings
    from roll_core.errors import ConfigError

    rollfile = options_of(context).rollfile
    if rollfile is not None:
        overrides = (*overrides, f"plugins.rollfile={rollfile.resolve()}")
    if gpus is not None:
        overrides = (*overrides, f"cluster.gpus={gpus}")
    config = load_config(file, overrides).config
    host = host_for(context, file, overrides)
    devices = budget_of(config.cluster, local_devices)
    if not devices:
        raise ConfigError(
            "there are no devices to plan for: cluster.gpus says none, or this machine has none; give --gpus, for "
            "instance --gpus 16x80GB"
        )
    needs = needs_of(config, host, prepared_folder)
    placement = solve(devices, needs.wishes, needs.demand)
    if as_json:
        click.echo(json.dumps({"placement": placement_dict(placement), "batch": needs.batch.as_dict()}, indent=2))
        return
    warnings = [f"warning: {text}" for text in size_warnings(config)]
    lines = ["# placement", *render_placement(placement), "", "# batch", *needs.batch.render(), *warnings]
    click.echo("\n".join(lines))
