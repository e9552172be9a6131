"""What holds for one domain: the run's settings with the domain's own laid over them, key by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from roll_core.config.problems import problems_of, report
from roll_core.config.schema import (
    AlgorithmConfig,
    ComponentRef,
    DataConfig,
    DomainConfig,
    RunConfig,
    SamplingConfig,
    Strict,
)
from roll_core.config.shape import Place
from roll_core.errors import unknown_name

_INHERITED_BY_EVAL = ("columns", "template", "system", "examples", "chat")


def resolve_algorithm(
    config: RunConfig, domain: str, *, origin: Callable[[Place], str] = lambda _: ""
) -> AlgorithmConfig:
    """The algorithm of one domain.

    A component that names no `use`, or the same one, keeps the run's options and adds its own; another `use` replaces
    the component with its options.

    Args:
        config: the run.
        domain: name of the domain.
        origin: says where the value at a place was written, for errors.

    Raises:
        UnknownNameError: there is no such domain.
        ConfigError: the keys do not fit together (for instance half of an adaptive KL).
    """
    override = _domain(config, domain).algorithm
    if override is None:
        return config.algorithm
    merged = _merged(config.algorithm, override)
    try:
        return AlgorithmConfig.model_validate(merged)
    except ValidationError as error:
        raise report(problems_of(error, ("domains", domain, "algorithm")), origin) from error


def resolve_sampling(config: RunConfig, domain: str) -> SamplingConfig:
    """How one domain samples.

    Raises:
        UnknownNameError: there is no such domain.
    """
    override = _domain(config, domain).sampling
    if override is None:
        return config.rollout.sampling
    return SamplingConfig.model_validate(_merged(config.rollout.sampling, override))


def resolve_eval_data(domain: DomainConfig) -> DataConfig | None:
    """The held-out data, with columns (key by key), template, system, examples and chat of `data` where not given."""
    own, data = domain.eval_data, domain.data
    if own is None:
        return None
    inherited = {key: getattr(data, key) for key in _INHERITED_BY_EVAL if key in data.model_fields_set}
    values = {**inherited, **_set_values(own)}
    if "columns" in inherited and "columns" in own.model_fields_set:
        values["columns"] = _merged(data.columns, own.columns)
    return DataConfig.model_validate(values)


def _domain(config: RunConfig, name: str) -> DomainConfig:
    if name not in config.domains:
        raise unknown_name("domain", name, config.domains)
    return config.domains[name]


def _set_values(model: Strict) -> dict[str, Any]:
    """What was set in a model, one level deep, options of a component included."""
    return {key: getattr(model, key) for key in model.model_fields_set}


def _merged(base: Strict, override: Strict) -> dict[str, Any]:
    values = _set_values(base)
    if isinstance(base, ComponentRef):
        values["use"] = base.use
    for key, new in _set_values(override).items():
        old = getattr(base, key, None)
        if isinstance(old, ComponentRef) and isinstance(new, ComponentRef):
            values[key] = _merged_component(old, new)
        elif isinstance(old, Strict) and isinstance(new, Strict):
            values[key] = _merged(old, new)
        else:
            values[key] = new
    return values


def _merged_component(old: ComponentRef, new: ComponentRef) -> dict[str, Any]:
    use = old.use if new.use is None else new.use
    kept = old.options if use is old.use or use == old.use else {}
    return {"use": use, **kept, **new.options}
