"""The resolved configuration for people and for programs: every value, where it came from, and what follows from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from roll_core.config.components import Catalogue, option_defaults
from roll_core.config.load import LoadedConfig, plain
from roll_core.config.plan import BatchPlan, size_warnings
from roll_core.config.resolve import resolve_algorithm, resolve_eval_data, resolve_sampling
from roll_core.config.schema import ComponentPatch, ComponentRef, Strict
from roll_core.config.shape import ROOT, Place, Shape, dotted, items

_COLUMN = 56
"""Where the sources begin, in characters."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A resolved configuration.

    Args:
        config: plain values, defaults and components' own defaults included.
        sources: source of every leaf by dotted path.
        domains: for each domain, the algorithm, sampling and held-out data that result for it.
        plan: the arithmetic of a batch.
        warnings: sizes that are possible and hardly meant.
    """

    config: dict[str, Any]
    sources: dict[str, str]
    domains: dict[str, dict[str, Any]]
    plan: BatchPlan
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "config": self.config,
            "sources": self.sources,
            "domains": self.domains,
            "plan": self.plan.as_dict(),
            "warnings": self.warnings,
        }

    def render(self) -> list[str]:
        """Lines for people: a YAML tree with the source behind each value, then domains and arithmetic."""
        lines = list(_tree(self.config, (), self.sources, 0))
        for name, resolved in self.domains.items():
            if resolved:
                lines += ["", f"# domain '{name}', resolved"]
                lines += [f"#   {line}" for line in _tree(resolved, ("domains", name), {}, 0)]
        lines += ["", "# batch", *(f"#   {line}" for line in self.plan.render())]
        return [*lines, *(f"# warning: {text}" for text in self.warnings)]


def explain(loaded: LoadedConfig, plan: BatchPlan, host: Catalogue | None = None) -> Explanation:
    """Resolve every value of a checked configuration.

    Args:
        loaded: what `load_config` gave.
        plan: what `check_config` gave.
        host: tells the default options of components; None leaves them out.
    """
    config = loaded.config
    resolver = _Resolver(loaded, host)
    tree = resolver.resolve(config, ROOT, ())
    domains: dict[str, dict[str, Any]] = {}
    for name, domain in config.domains.items():
        held_out = resolve_eval_data(domain)
        resolved = {
            "algorithm": None if domain.algorithm is None else resolve_algorithm(config, name),
            "sampling": None if domain.sampling is None else resolve_sampling(config, name),
            "eval_data": held_out,
        }
        domains[name] = {key: _dump(value) for key, value in resolved.items() if value is not None}
    return Explanation(tree, resolver.sources, domains, plan, size_warnings(config))


class _Resolver:
    """Walks the typed configuration and notes the source of every leaf."""

    def __init__(self, loaded: LoadedConfig, host: Catalogue | None) -> None:
        self.layered = loaded.layered
        self.host = host
        self.sources: dict[str, str] = {}

    def resolve(self, value: Any, shape: Shape, place: Place) -> Any:
        """Plain values of a place and of everything below it."""
        if isinstance(value, ComponentPatch | Strict) and self._is_partial(place):
            return self._written(value, place)
        if isinstance(value, ComponentRef):
            return self._component(value, shape, place)
        if shape.form == "section" and value is not None:
            return {key: self._child(getattr(value, key), shape, place, key) for key in shape.keys}
        if shape.form in ("table", "list") and items(value) and _has_sections(value):
            resolved = {key: self._child(item, shape, place, key) for key, item in items(value)}
            return resolved if shape.form == "table" else list(resolved.values())
        return self._leaf(value, place)

    def _child(self, value: Any, shape: Shape, place: Place, key: str | int) -> Any:
        inner = shape.child(key)
        return self.resolve(value, inner, (*place, key)) if inner is not None else self._leaf(value, (*place, key))

    def _is_partial(self, place: Place) -> bool:
        """Whether only what was written counts here, since the rest is inherited."""
        return len(place) == 3 and place[0] == "domains" and place[2] in ("algorithm", "sampling", "eval_data")

    def _written(self, value: Any, place: Place) -> Any:
        """What a domain sets of its own, without defaults."""
        if isinstance(value, Strict):
            names = [name for name in _names(value) if name in value.model_fields_set]
            return {name: self._written(getattr(value, name), (*place, name)) for name in names}
        return self._leaf(value, place)

    def _component(self, ref: ComponentRef, shape: Shape, place: Place) -> dict[str, Any]:
        resolved = {key: self._child(getattr(ref, key), shape, place, key) for key in shape.keys}
        resolved |= {key: self._leaf(value, (*place, key)) for key, value in ref.options.items()}
        if self.host is not None and shape.of_kind is not None:
            for key, value in option_defaults(shape.of_kind.kind, ref, self.host).items():
                resolved[key] = self._leaf(value, (*place, key), f"default of {ref.use}")
        return resolved

    def _leaf(self, value: Any, place: Place, default: str = "default") -> Any:
        source = self.layered.source(place)
        text = default if source.kind == "default" else str(source)
        self.sources[dotted(place)] = f"{text} (idle)" if place in self.layered.idle else text
        return plain(_settings(value))


def _settings(value: Any) -> Any:
    """A default of an option that is a model or dataclass, as a mapping."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _dump(value: Any) -> Any:
    """Plain values of a model, options of components included."""
    if isinstance(value, Strict):
        return {name: _dump(getattr(value, name)) for name in _names(value)}
    return plain(_settings(value))


def _names(model: Strict) -> tuple[str, ...]:
    """Declared fields of a model, then a component's own options."""
    return (*type(model).model_fields, *(model.model_extra or {}))


def _has_sections(value: Any) -> bool:
    return any(isinstance(item, Strict) for _, item in items(value))


def _tree(value: Mapping[str, Any] | list[Any], place: Place, sources: Mapping[str, str], depth: int) -> Iterator[str]:
    for key, item in items(value):
        at = (*place, key)
        head = f"{'  ' * depth}{'-' if isinstance(key, int) else f'{key}:'}"
        source = sources.get(dotted(at))
        if source is None and isinstance(item, dict | list) and item:
            yield head
            yield from _tree(item, at, sources, depth + 1)
        else:
            line = f"{head} {json.dumps(item, ensure_ascii=False)}"
            yield f"{line:<{_COLUMN}} # {source}" if source else line
