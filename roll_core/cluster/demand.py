"""What a run needs devices for, and what it wishes: read from its config before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roll_core.cluster.declared import declared_defaults
from roll_core.cluster.memory import RolloutLoad, TrainLoad
from roll_core.cluster.model_shape import ModelShape, read_shape
from roll_core.cluster.placed import Demand
from roll_core.config.cluster import ClusterConfig
from roll_core.config.components import option_defaults
from roll_core.config.plan import MICRO_TOKENS, BatchPlan, plan_batch, size_problems
from roll_core.config.resolve import resolve_algorithm
from roll_core.config.schema import ComponentRef, RunConfig
from roll_core.contracts import requirements_of
from roll_core.errors import ConfigError
from roll_core.models import cache_folder, resolve_model
from roll_core.plugin.host import Host

Folders = Callable[[str, str], Path]
"""The folder of a model, from its name and the config path that holds it."""

_TEACHER = "logprobs@"
_SAME = {
    "train": (
        "train.strategy",
        {"world_size": "gpus", "tensor_parallel": "tensor_parallel", "cpu_offload": "cpu_offload"},
    ),
    "rollout": ("rollout.backend", {"replicas": "replicas", "tensor_parallel": "tensor_parallel"}),
}
"""Options of train strategy and rollout backend, and the wishes of `cluster` that say the same."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a placement is solved from, beside the devices."""

    wishes: ClusterConfig
    """The `cluster` section, filled up with what strategy and backend say in their own options."""
    demand: Demand
    batch: BatchPlan


def needs_of(config: RunConfig, host: Host, folders: Folders) -> Needs:
    """Read what a run needs. Loads no model, and nothing heavy.

    Args:
        config: the run.
        host: its plugins. Estimators are asked what they read; losses, which would load torch, are not.
        folders: finds models.

    Raises:
        ConfigError: sizes that cannot be, a model that is not there, or two options that contradict each other.
    """
    options = strategy_options(config, host)
    batch = replace(plan_batch(config, None), micro_tokens=options.get(MICRO_TOKENS))
    problems = size_problems(config, batch)
    if problems:
        raise ConfigError("; ".join(f"{'.'.join(map(str, problem.place))}: {problem.message}" for problem in problems))
    return Needs(_wishes(config, options), _demand(config, batch, options, host, folders), batch)


def prepared_folder(name: str, place: str) -> Path:
    """A model's folder, for a plan, which prepares nothing.

    Raises:
        ConfigError: there is none.
    """
    for folder in (Path(name).expanduser(), cache_folder() / name):
        if (folder / "config.json").is_file():
            return folder
    raise ConfigError(
        f"{place}: '{name}' is no model folder, and no installed model of that name is prepared; a plan prepares "
        f"nothing, so run 'roll models prepare {name}' first, or name a folder with a config.json"
    )


def folders_of(host: Host) -> Folders:
    """Finds models as a run does: named ones are prepared."""
    return lambda name, place: resolve_model(name, host, place=place)


def strategy_options(config: RunConfig, host: Host) -> dict[str, Any]:
    """Options of the train strategy with their defaults, from its config model, else from the source of its factory.

    Importing the factory would load torch.
    """
    ref = config.train.strategy
    if not isinstance(ref.use, str):
        return ref.options
    component = host.component("train_strategies", ref.use, "train.strategy")
    if component.config is not None:
        return {**option_defaults("train_strategies", ref, host), **ref.options}
    return {**declared_defaults(component.factory), **ref.options}


def _wishes(config: RunConfig, options: Mapping[str, Any]) -> ClusterConfig:
    cluster, backend = config.cluster, config.rollout.backend
    train = _merged("train", cluster.train.model_dump(), config.train.strategy, options)
    rollout = _merged("rollout", cluster.rollout.model_dump(), backend, backend.options)
    return ClusterConfig.model_validate({**cluster.model_dump(), "train": train, "rollout": rollout})


def _merged(role: str, wishes: dict[str, Any], ref: ComponentRef, options: Mapping[str, Any]) -> dict[str, Any]:
    """Wishes of a role, those that are left open taken from the component's options.

    Raises:
        ConfigError: both are written, and differ.
    """
    place, names = _SAME[role]
    for option, wish in names.items():
        written = ref.options.get(option)
        if wishes[wish] is None:
            wishes[wish] = options.get(option) or None  # 0 replicas: none of their own
        elif written is not None and written != wishes[wish]:
            raise ConfigError(
                f"{place}.{option} is {written!r} and cluster.{role}.{wish} is {wishes[wish]!r}; write one of them"
            )
    return wishes


def _demand(config: RunConfig, batch: BatchPlan, options: Mapping[str, Any], host: Host, folders: Folders) -> Demand:
    algorithms = [resolve_algorithm(config, name) for name in config.domains]
    estimators = [
        host.build("advantages", each.advantage.use, each.advantage.options, place="algorithm.advantage")
        for each in algorithms
    ]
    read: frozenset[str] = frozenset().union(*(requirements_of(estimator) for estimator in estimators))
    model = config.model

    def shape(name: str, place: str) -> ModelShape:
        return read_shape(folders(name, place))

    actor = shape(model.path, "model.path")
    needs_reference = "ref_logprobs" in read or any(each.kl.coef > 0 for each in algorithms) or model.reference
    teachers = sorted(name.removeprefix(_TEACHER) for name in read if name.startswith(_TEACHER))
    train = TrainLoad(
        actor=actor,
        micro_tokens=batch.micro_tokens or batch.max_rollout_tokens,
        lora_rank=None if model.lora is None else model.lora.rank,
        reference=shape(model.reference or model.path, "model.reference") if needs_reference else None,
        teachers=tuple(shape(name, "teacher") for name in teachers),
        critic=shape(config.critic.path or model.path, "critic.path") if "values" in read else None,
        is_checkpointed=bool(options.get("gradient_checkpointing", False)),
        logprob_chunk=int(options.get("logprob_chunk", 2048)),
        replicate=int(options.get("replicate", 1)),
        is_resharded=bool(options.get("reshard_after_forward", True)),
    )
    rollout = RolloutLoad(actor, batch.max_rollout_tokens, batch.group_size)
    is_ahead = config.rollout.mode != "sync"
    return Demand(train, rollout, batch.prompts, batch.rollouts_per_update, is_ahead)
