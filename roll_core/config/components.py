"""The components a configuration names: do they exist, do their options fit, and which columns do they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from roll_core.config.problems import Problem, problems_of, unknown_key
from roll_core.config.resolve import resolve_algorithm
from roll_core.config.schema import AlgorithmConfig, ComponentRef, RunConfig
from roll_core.config.shape import FREE, Place, Shape, dotted, items, references, shape_of
from roll_core.contracts import requirements_of
from roll_core.errors import RollError
from roll_core.plugin.component import Component


class Catalogue(Protocol):
    """What the configuration asks of the plugin host (`roll_core.plugin.host.Host`)."""

    def config_model(self, kind: str, name: str, place: str = "") -> type[BaseModel]:
        """The options of a component; an unknown name is an error with a near match."""
        ...

    def build(self, kind: str, use: Any, options: Mapping[str, Any], *, place: str, **context: Any) -> Any:
        """Build a component by name, or take the object given from Python."""
        ...

    def components(self, kind: str | None = None) -> list[tuple[str, str, Component]]:
        """(kind, plugin, component) of everything on offer."""
        ...


@dataclass(frozen=True, slots=True)
class Findings:
    """What looking at the components gave: problems, and the columns that estimators and losses read."""

    problems: tuple[Problem, ...]
    columns: frozenset[str] | None
    """None when a component could not be built, so that nobody knows."""


def check_components(config: RunConfig, host: Catalogue) -> Findings:
    """Validate every component's options, and build estimators and losses to ask what they read.

    Objects given from Python are taken as they are.
    """
    problems: list[Problem] = []
    known_elsewhere: set[tuple[str, str]] = set()
    for place, kind, ref in all_references(config):
        for problem in _option_problems(place, kind, ref, host):
            key = (problem.place[-1] if len(problem.place) > len(place) else "", problem.message)
            repeats = place[0] == "domains" and "algorithm" in place and key in known_elsewhere
            if place[0] == "algorithm":
                known_elsewhere.add((str(key[0]), key[1]))
            if not repeats:
                problems.append(problem)
    if problems:
        return Findings(tuple(problems), None)
    columns: frozenset[str] = frozenset()
    for place, algorithm in _algorithms(config):
        read: dict[str, frozenset[str]] = {}
        for name, kind, ref in _parts(algorithm):
            try:
                read[name] = requirements_of(host.build(kind, ref.use, ref.options, place=""))
            except RollError as error:
                problems.append(Problem((*place, name), str(error)))
        columns = columns.union(*read.values())
        problems += _uncorrected(config, place, algorithm, read.get("loss"))
    return Findings(tuple(dict.fromkeys(problems)), None if problems else columns)


def all_references(config: RunConfig) -> Iterator[tuple[Place, str, ComponentRef]]:
    """Every component the run names: place, kind, reference; where a domain changes one, what results."""
    yield from references(config)
    for name, domain in config.domains.items():
        if domain.algorithm is None:
            continue
        for part, kind, ref in _parts(resolve_algorithm(config, name)):
            if part in domain.algorithm.model_fields_set:
                yield ("domains", name, "algorithm", part), kind, ref


def option_defaults(kind: str, ref: ComponentRef, host: Catalogue) -> dict[str, Any]:
    """The options a reference leaves at their default, with the default; empty for an object given from Python."""
    if not isinstance(ref.use, str):
        return {}
    fields = host.config_model(kind, ref.use).model_fields
    missing = {name: info for name, info in fields.items() if name not in ref.options and not info.is_required()}
    return {name: info.get_default(call_default_factory=True, validated_data={}) for name, info in missing.items()}


def _algorithms(config: RunConfig) -> list[tuple[Place, AlgorithmConfig]]:
    """The algorithms in use: the run's where a domain has no own one, and each domain's own."""
    own = [name for name, domain in config.domains.items() if domain.algorithm is not None]
    found: list[tuple[Place, AlgorithmConfig]] = [
        (("domains", name, "algorithm"), resolve_algorithm(config, name)) for name in own
    ]
    return found if len(own) == len(config.domains) else [(("algorithm",), config.algorithm), *found]


def _parts(algorithm: AlgorithmConfig) -> tuple[tuple[str, str, ComponentRef], ...]:
    return ("advantage", "advantages", algorithm.advantage), ("loss", "policy_losses", algorithm.loss)


def _uncorrected(
    config: RunConfig, place: Place, algorithm: AlgorithmConfig, read: frozenset[str] | None
) -> list[Problem]:
    """Whether groups beyond the staleness bound would be trained as if the policy of now had sampled them.

    Args:
        config: the run's.
        place: of the algorithm.
        algorithm: resolved.
        read: columns that its loss reads; None when it could not be built.
    """
    trains_stale = config.rollout.mode == "async" and config.rollout.on_stale == "correct"
    is_corrected = algorithm.correction.kind != "none" or read is None or "rollout_logprobs" in read
    if not trains_stale or is_corrected:
        return []
    message = (
        f"'correct' trains groups beyond rollout.max_staleness, but nothing corrects them in '{dotted(place)}': set "
        f"{dotted((*place, 'correction'))}, such as {{kind: token_tis}}, take a loss that reads rollout_logprobs, such "
        "as decoupled_ppo, or set rollout.on_stale: wait"
    )
    return [Problem(("rollout", "on_stale"), message)]


def _option_problems(place: Place, kind: str, ref: ComponentRef, host: Catalogue) -> list[Problem]:
    if not isinstance(ref.use, str):
        return []
    try:
        model = host.config_model(kind, ref.use)
    except RollError as error:
        return [Problem((*place, "use"), str(error))]
    options, shape = ref.options, shape_of(model)
    declared = set(type(ref).model_fields)

    def known(at: Place) -> Iterable[str]:
        inner = _inside(shape, at[len(place) :])
        return {*inner.keys, *declared} if len(at) == len(place) else inner.keys

    problems = []
    names = {*model.model_fields, *(info.alias for info in model.model_fields.values() if info.alias)}
    if model.model_config.get("extra") not in ("allow", "forbid"):
        problems = [unknown_key((*place, key), known(place)) for key in options if key not in names]
    try:
        model.model_validate(options)
    except ValidationError as error:
        problems += problems_of(error, place, known, lambda at: _stands(options, at[len(place) :]))
    return problems


def _inside(shape: Shape, keys: Place) -> Shape:
    for key in keys:
        shape = shape.child(key) or FREE
    return shape


def _stands(value: Any, keys: Place) -> bool:
    """Whether these keys lead to something in a value; pydantic's names for the arms of a union do not."""
    for key in keys:
        inner = dict(items(value))
        if key not in inner:
            return False
        value = inner[key]
    return True
