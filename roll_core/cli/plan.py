"""`roll plan`: who would get which devices, how much memory each needs, and the batch arithmetic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roll_core.cli.context import host_for, options_of

if TYPE_CHECKING:
    from roll_core.cluster.placement import Demand
    from roll_core.config.plan import BatchPlan
    from roll_core.config.schema import RunConfig
    from roll_core.plugin.host import Host


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1)
@click.option("--gpus", metavar="BUDGET", help="Devices, for instance 16x80GB or 2x24GB+8x80GB (cluster.gpus).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plan_command(
    context: click.Context, file: Path, overrides: tuple[str, ...], gpus: str | None, *, as_json: bool
) -> None:
    """Print placement, memory and batch sizes of the run FILE describes, without loading or starting anything.

    OVERRIDES are written key.path=value, as for `roll train`. Memory is estimated from the model's config.json and
    the run's settings; the formulas are in the documentation of `roll_core.cluster.memory`.
    """
    from roll_core.cluster.budget import parse_budget
    from roll_core.cluster.placement import solve
    from roll_core.cluster.placement_report import placement_dict, render_placement
    from roll_core.config.load import load_config
    from roll_core.config.plan import size_warnings
    from roll_core.errors import ConfigError

    rollfile = options_of(context).rollfile
    if rollfile is not None:
        overrides = (*overrides, f"plugins.rollfile={rollfile.resolve()}")
    config = load_config(file, overrides).config
    host = host_for(context, file, overrides)
    options = strategy_options(config, host)
    batch, wishes = batch_of(config, options), config.cluster
    budget = gpus or wishes.gpus
    if budget is None:
        raise ConfigError("there is no budget to plan for; give --gpus, for instance --gpus 16x80GB, or cluster.gpus")
    demand = demand_of(config, batch, options, host)
    placement = solve(parse_budget(budget, wishes.gpus_per_node), wishes, demand)
    if as_json:
        click.echo(json.dumps({"placement": placement_dict(placement), "batch": batch.as_dict()}, indent=2))
        return
    warnings = [f"warning: {text}" for text in size_warnings(config)]
    lines = ["# placement", *render_placement(placement), "", "# batch", *batch.render(), *warnings]
    click.echo("\n".join(lines))


def strategy_options(config: RunConfig, host: Host) -> dict[str, Any]:
    """Options of the train strategy, its defaults read from its source (importing it would load torch)."""
    from roll_core.cluster.declared import declared_defaults

    strategy = config.train.strategy
    if not isinstance(strategy.use, str):
        return strategy.options
    component = host.component("train_strategies", strategy.use, "train.strategy")
    return {**declared_defaults(component.factory), **strategy.options}


def batch_of(config: RunConfig, options: Mapping[str, Any]) -> BatchPlan:
    """The batch arithmetic with the strategy's token budget.

    Raises:
        ConfigError: sizes that cannot be.
    """
    from roll_core.config.plan import MICRO_TOKENS, plan_batch, size_problems
    from roll_core.errors import ConfigError

    batch = replace(plan_batch(config, None), micro_tokens=options.get(MICRO_TOKENS))
    problems = size_problems(config, batch)
    if problems:
        raise ConfigError("; ".join(f"{'.'.join(map(str, problem.place))}: {problem.message}" for problem in problems))
    return batch


def demand_of(config: RunConfig, batch: BatchPlan, options: Mapping[str, Any], host: Host) -> Demand:
    """What the run needs devices for. Estimators are asked what they read; losses, which would load torch, are not."""
    from roll_core.cluster.memory import RolloutLoad, TrainLoad
    from roll_core.cluster.placement import Demand
    from roll_core.config.resolve import resolve_algorithm
    from roll_core.contracts import requirements_of

    algorithms = [resolve_algorithm(config, name) for name in config.domains]
    read: frozenset[str] = frozenset().union(
        *(
            requirements_of(host.build("advantages", a.advantage.use, a.advantage.options, place="algorithm.advantage"))
            for a in algorithms
        )
    )
    actor = shape_named(config.model.path, "model.path")
    needs_reference = "ref_logprobs" in read or any(a.kl.coef > 0 for a in algorithms) or config.model.reference
    reference = config.model.reference or config.model.path
    teachers = sorted(name.removeprefix("logprobs@") for name in read if name.startswith("logprobs@"))
    train = TrainLoad(
        actor=actor,
        micro_tokens=batch.micro_tokens or batch.max_rollout_tokens,
        lora_rank=None if config.model.lora is None else config.model.lora.rank,
        reference=shape_named(reference, "model.reference") if needs_reference else None,
        teachers=tuple(shape_named(name, "teacher") for name in teachers),
        critic=shape_named(config.critic.path or config.model.path, "critic.path") if "values" in read else None,
        is_checkpointed=bool(options.get("gradient_checkpointing", False)),
        logprob_chunk=int(options.get("logprob_chunk", 2048)),
    )
    rollout = RolloutLoad(actor, batch.max_rollout_tokens, batch.group_size)
    return Demand(train, rollout, batch.prompts, batch.rollouts_per_update)


def shape_named(name: str, place: str) -> Any:
    """The shape of a model folder, or of an installed model that has been prepared already.

    Raises:
        ConfigError: neither is there; nothing is prepared for a plan.
    """
    from roll_core.cluster.model_shape import read_shape
    from roll_core.errors import ConfigError
    from roll_core.models import cache_folder

    for folder in (Path(name).expanduser(), cache_folder() / name):
        if (folder / "config.json").is_file():
            return read_shape(folder)
    raise ConfigError(
        f"{place}: '{name}' is no model folder, and no installed model of that name is prepared; a plan prepares "
        f"nothing, so run 'roll models prepare {name}' first, or name a folder with a config.json"
    )
