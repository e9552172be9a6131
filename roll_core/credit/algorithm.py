"""One domain's algorithm, what the domains together require, and which combinations make no sense."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.config.schema import AlgorithmConfig, CriticConfig
from roll_core.contracts import requirements_of
from roll_core.errors import ConfigError

logger = logging.getLogger(__name__)

MODEL_OUTPUTS = frozenset({"logprobs", "full_logprobs", "entropy"})
"""Requirements of a loss that the model's forward pass gives; anything else is a column."""


@dataclass(frozen=True)
class DomainAlgorithm:
    """A domain's algorithm, resolved and built."""

    config: AlgorithmConfig
    advantage: Any
    """The built `AdvantageEstimator`."""
    loss: Any
    """The built `PolicyLoss`."""
    weight: float
    """Weight of the domain's tokens in the objective."""
    max_new_tokens: int
    """Token limit of an answer in this domain."""

    @property
    def agg_length(self) -> int | None:
        """The constant length the aggregation divides by; None where it divides by none."""
        if self.config.agg != "dr_grpo":
            return None
        return self.config.agg_length or self.max_new_tokens

    @property
    def has_critic(self) -> bool:
        """Whether the estimator reads a critic's values."""
        return "values" in requirements_of(self.advantage)


def required_columns(algorithms: Mapping[str, DomainAlgorithm], *, updates_per_batch: int) -> frozenset[str]:
    """Columns that must be computed before `Credit.advantages`.

    `old_logprobs` of a loss cost a forward pass only when a batch is used for more than one update: in the first
    update they equal the current log-probs. KL in the reward and a correction need them in any case. A reference model
    is needed if and only if some KL coefficient is positive or a component reads `ref_logprobs`.

    Args:
        algorithms: the run's domains.
        updates_per_batch: optimiser steps a batch is used for (`mini_batches * epochs`).

    Returns:
        Names among `old_logprobs`, `ref_logprobs`, `values`, `greedy_rewards`, `logprobs@<model>` and whatever else
        the components require. `rollout_logprobs` are always there and not named.
    """
    names: set[str] = set()
    for algorithm in algorithms.values():
        config = algorithm.config
        needed = requirements_of(algorithm.loss) - MODEL_OUTPUTS
        if updates_per_batch == 1:
            needed -= {"old_logprobs"}
        names |= needed | requirements_of(algorithm.advantage)
        if config.kl.coef > 0:
            names.add("ref_logprobs")
            if config.kl.where == "reward":
                names.add("old_logprobs")
        if config.correction.kind != "none":
            names.add("old_logprobs")
    return frozenset(names - {"rollout_logprobs"})


def check_algorithms(algorithms: Mapping[str, DomainAlgorithm], critic: CriticConfig | None) -> None:
    """Refuse settings that contradict each other or do nothing.

    Raises:
        ConfigError: names the domain, the setting and what to write instead.
    """
    if not algorithms:
        raise ConfigError("no domain has an algorithm; `domains` needs at least one entry")
    for name, algorithm in algorithms.items():
        place = f"algorithm of domain '{name}'"
        _check_correction(place, algorithm)
        _check_kl(place, algorithm.config)
        if algorithm.has_critic and critic is None:
            raise ConfigError(
                f"{place}: advantage '{algorithm.config.advantage.label}' reads values, but no critic is set"
            )
        if algorithm.config.agg_length is not None and algorithm.config.agg != "dr_grpo":
            raise ConfigError(
                f"{place}: agg_length={algorithm.config.agg_length} has no effect with agg '{algorithm.config.agg}'; "
                "remove it or set agg: dr_grpo"
            )
        buffer = algorithm.config.overlong.buffer
        if buffer > algorithm.max_new_tokens:
            raise ConfigError(
                f"{place}: overlong.buffer={buffer} is larger than max_new_tokens={algorithm.max_new_tokens}, so every "
                "answer would be punished"
            )


def _check_correction(place: str, algorithm: DomainAlgorithm) -> None:
    correction = algorithm.config.correction
    if correction.kind == "none":
        return
    if "rollout_logprobs" in requirements_of(algorithm.loss):
        raise ConfigError(
            f"{place}: loss '{algorithm.config.loss.label}' divides by rollout_logprobs already; "
            f"correction.kind='{correction.kind}' would correct twice. Set correction: {{kind: none}}"
        )
    if correction.kind.endswith("_tis") and correction.low > 0:
        raise ConfigError(
            f"{place}: correction.low={correction.low} does nothing with kind '{correction.kind}'; it bounds masks only"
        )
    if correction.low > correction.high:
        raise ConfigError(f"{place}: correction.low={correction.low} is above correction.high={correction.high}")


def _check_kl(place: str, config: AlgorithmConfig) -> None:
    if config.kl.adaptive is not None and config.kl.coef == 0:
        raise ConfigError(f"{place}: kl.adaptive has no effect with kl.coef: 0, since it multiplies; set a start value")
    if config.kl.coef > 0 and config.kl.where == "loss" and config.kl.estimator == "k1":
        logger.warning("%s: k1 as a loss has gradient zero in expectation; use 'unbiased' or 'k2'", place)


def partition(names: Iterable[str], key: Callable[[str], Any]) -> list[tuple[str, ...]]:
    """Group names by equal keys, in order of first appearance; keys need no hash."""
    groups: list[tuple[Any, list[str]]] = []
    for name in names:
        wanted = key(name)
        for known, members in groups:
            if known == wanted:
                members.append(name)
                break
        else:
            groups.append((wanted, [name]))
    return [tuple(members) for _, members in groups]
