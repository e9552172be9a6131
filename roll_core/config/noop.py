"""Keys that can have no effect under the rest of the configuration: each is an error that says what switches it on.

Only what somebody wrote counts, and only when the switch was not thrown in a later layer: a file with
`kl: {coef: 0.01, estimator: k3}` may be run with the override `algorithm.kl.coef=0`, which leaves the estimator idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from roll_core.config.layers import Layered
from roll_core.config.problems import Problem
from roll_core.config.resolve import resolve_algorithm
from roll_core.config.schema import AlgorithmConfig, RunConfig
from roll_core.config.shape import Place, dotted, items


@dataclass(frozen=True, slots=True)
class Inert:
    """A place whose value is not read.

    Args:
        place: the key, or a section whose keys are all meant.
        because: the reason, and what to change.
        switches: places that decide it.
    """

    place: Place
    because: str
    switches: tuple[Place, ...] = ()


# --- rules of one algorithm; places are relative to it ----------------------------------------------------------------


def kl_needs_coef(algorithm: AlgorithmConfig) -> Iterator[Inert]:
    """Without a coefficient there is no divergence to estimate, place or adapt."""
    if algorithm.kl.coef == 0:
        for key in ("where", "estimator", "adaptive"):
            yield Inert(("kl", key), "kl.coef is 0; set kl.coef above 0", (("kl", "coef"),))


def length_needs_dr_grpo(algorithm: AlgorithmConfig) -> Iterator[Inert]:
    """Only one aggregation divides by a constant length."""
    if algorithm.agg != "dr_grpo":
        yield Inert(("agg_length",), f"agg is '{algorithm.agg}'; set agg: dr_grpo", (("agg",),))


def bounds_need_correction(algorithm: AlgorithmConfig) -> Iterator[Inert]:
    """Truncation has an upper bound, masks have both."""
    kind, switch = algorithm.correction.kind, (("correction", "kind"),)
    if kind == "none":
        yield Inert(("correction", "high"), "correction.kind is 'none'; set correction.kind", switch)
    if not kind.endswith("mask"):
        choices = "token_mask, seq_mask or geo_mask"
        yield Inert(("correction", "low"), f"correction.kind is '{kind}'; set correction.kind to {choices}", switch)


def penalty_needs_buffer(algorithm: AlgorithmConfig) -> Iterator[Inert]:
    """The soft penalty acts inside the buffer only."""
    if algorithm.overlong.buffer == 0:
        because = "overlong.buffer is 0; set overlong.buffer to a number of tokens"
        yield Inert(("overlong", "penalty"), because, (("overlong", "buffer"),))


ALGORITHM_RULES: tuple[Callable[[AlgorithmConfig], Iterator[Inert]], ...] = (
    kl_needs_coef,
    length_needs_dr_grpo,
    bounds_need_correction,
    penalty_needs_buffer,
)

# --- rules of the run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at. `columns`: what estimators and losses read; None when that is not known."""

    config: RunConfig
    algorithms: dict[str, AlgorithmConfig]
    columns: frozenset[str] | None


def critic_needs_values(facts: Facts) -> Iterator[Inert]:
    """The critic exists when something reads its values."""
    if facts.columns is not None and "values" not in facts.columns:
        switches = _of_algorithms(facts, "advantage")
        yield Inert(("critic",), "no advantage estimator reads values; use one that does, such as gae", switches)


def reference_needs_reader(facts: Facts) -> Iterator[Inert]:
    """The reference model is loaded when something reads its log-probs."""
    is_read = facts.columns is None or "ref_logprobs" in facts.columns
    if not is_read and all(algorithm.kl.coef == 0 for algorithm in facts.algorithms.values()):
        switches = (*_of_algorithms(facts, "kl"), *_of_algorithms(facts, "loss"))
        yield Inert(("model", "reference"), "nothing reads ref_logprobs; set algorithm.kl.coef above 0", switches)


def eval_needs_data(facts: Facts) -> Iterator[Inert]:
    """Evaluation needs held-out rows; switching it off is always allowed."""
    if all(domain.eval_data is None for domain in facts.config.domains.values()):
        for key in type(facts.config.eval).model_fields:
            if getattr(facts.config.eval, key):
                yield Inert(("eval", key), "no domain has held-out rows; add domains.<name>.eval_data", ())


def held_out_rows_are_read_once(facts: Facts) -> Iterator[Inert]:
    """Evaluation goes through the rows once, in their order."""
    for name in facts.config.domains:
        for key in ("shuffle", "repeat"):
            yield Inert(("domains", name, "eval_data", key), "held-out rows are read once, in their order")


def deadline_needs_workers(facts: Facts) -> Iterator[Inert]:
    """Only a process of its own can be stopped."""
    if facts.config.scoring.workers == 0:
        because = "scoring.workers is 0, and only worker processes have deadlines; set scoring.workers to 1 or more"
        yield Inert(("scoring", "timeout_s"), because, (("scoring", "workers"),))


def hosts_need_executor(facts: Facts) -> Iterator[Inert]:
    """Processes beside the driver's children need somebody to start them."""
    if facts.config.scoring.hosts and facts.config.cluster.executor == "driver":
        because = "cluster.executor is 'driver'; set cluster.executor to local or ray"
        yield Inert(("scoring", "hosts"), because, (("cluster", "executor"),))
    if not facts.config.scoring.hosts:
        yield Inert(("scoring", "host_cpus"), "scoring.hosts is 0; set scoring.hosts", (("scoring", "hosts"),))


def early_stop_needs_filters(facts: Facts) -> Iterator[Inert]:
    """Without filters every group passes, so none is hopeless."""
    if facts.config.rollout.early_stop and not facts.config.filters:
        yield Inert(("rollout", "early_stop"), "there are no filters; add filters", (("filters",),))


def staleness_needs_async(facts: Facts) -> Iterator[Inert]:
    """Only asynchronous rollouts have a bound of their own: sync is never behind, one_step always by one."""
    mode = facts.config.rollout.mode
    if mode != "async":
        because = f"rollout.mode is '{mode}'; set rollout.mode: async"
        for key in ("max_staleness", "on_stale"):
            yield Inert(("rollout", key), because, (("rollout", "mode"),))


def address_needs_ray(facts: Facts) -> Iterator[Inert]:
    """Only Ray has a cluster to find, and room in it to wait for."""
    executor = facts.config.cluster.executor
    if executor != "ray":
        because = f"cluster.executor is '{executor}'; set cluster.executor: ray"
        for key in ("address", "placement_timeout_s"):
            yield Inert(("cluster", key), because, (("cluster", "executor"),))


def waiting_needs_restarts(facts: Facts) -> Iterator[Inert]:
    """A run that never restarts neither waits before it, nor needs anybody to do it."""
    if facts.config.faults.restarts == 0:
        for key in ("wait_s", "supervise"):
            because = "faults.restarts is 0; set faults.restarts to 1 or more"
            yield Inert(("faults", key), because, (("faults", "restarts"),))


RUN_RULES: tuple[Callable[[Facts], Iterator[Inert]], ...] = (
    critic_needs_values,
    reference_needs_reader,
    eval_needs_data,
    held_out_rows_are_read_once,
    deadline_needs_workers,
    hosts_need_executor,
    early_stop_needs_filters,
    staleness_needs_async,
    address_needs_ray,
    waiting_needs_restarts,
)


def noop_keys(
    config: RunConfig, layered: Layered, columns: frozenset[str] | None
) -> tuple[list[Problem], frozenset[Place]]:
    """Every written key that has no effect.

    Args:
        config: the validated configuration.
        layered: what was written, with its sources.
        columns: what estimators and losses read; None skips the rules that depend on it.

    Returns:
        The mistakes, and the places that a later layer made idle.
    """
    facts = Facts(config, {name: resolve_algorithm(config, name) for name in config.domains}, columns)
    inert = [found for rule in RUN_RULES for found in rule(facts)] + list(_inert_in_algorithms(facts))
    problems, idle = [], set()
    for found in inert:
        for place in _written(layered, found.place):
            thrown = max((_layer(layered, switch) for switch in found.switches), default=-1)
            if layered.source(place).layer < thrown:
                idle.add(place)
            else:
                problems.append(Problem(place, f"has no effect: {found.because}, or remove '{dotted(place)}'"))
    return problems, frozenset(idle)


def _inert_in_algorithms(facts: Facts) -> Iterator[Inert]:
    """Keys of the run's algorithm that no domain reads, and keys of a domain's own that it does not read."""
    by_domain = {
        name: {found.place: found for rule in ALGORITHM_RULES for found in rule(algorithm)}
        for name, algorithm in facts.algorithms.items()
    }
    for name, found in by_domain.items():
        for place, inert in found.items():
            own = ("domains", name, "algorithm")
            switches = tuple((*at, *switch) for at in (own, ("algorithm",)) for switch in inert.switches)
            yield Inert((*own, *place), inert.because, switches)
    first, *others = by_domain.values()
    for place, inert in first.items():
        if all(place in other for other in others):
            switches = tuple(at for switch in inert.switches for at in _of_algorithms(facts, *switch))
            yield Inert(("algorithm", *place), inert.because, switches)


def _of_algorithms(facts: Facts, *keys: Any) -> tuple[Place, ...]:
    """A place of the algorithm, in the run's and in every domain's own."""
    return ("algorithm", *keys), *(("domains", name, "algorithm", *keys) for name in facts.algorithms)


def _written(layered: Layered, place: Place) -> list[Place]:
    """The innermost written keys at and below a place; an explicit null says "not used" and does not count."""
    below = [at for at in layered.sources if at[: len(place)] == place and _value(layered.tree, at) is not None]
    return [at for at in below if not any(other != at and other[: len(at)] == at for other in below)]


def _layer(layered: Layered, switch: Place) -> int:
    """The last layer that wrote a switch, or anything below it."""
    return max((s.layer for at, s in layered.sources.items() if at[: len(switch)] == switch), default=-1)


def _value(tree: Any, place: Place) -> Any:
    for key in place:
        tree = dict(items(tree)).get(key)
    return tree
