"""Columns that credit adds to a batch: advantages, returns, correction weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roll_core.contracts import column, requirements_of
from roll_core.credit.algorithm import DomainAlgorithm, partition
from roll_core.errors import ComponentError, ConfigError, RollError
from roll_core.numerics import correction_weights, kl_reward
from roll_core.types import AdvantageInputs, Advantages, AnyArray, Batch, BoolArray, FloatArray, IndexArray

_OWN_FIELDS = frozenset({"values", "greedy_rewards"})


def domain_index(batch: Batch, names: Sequence[str]) -> IndexArray:
    """Positions of `names` in `batch.domains`."""
    return np.array([batch.domains.index(name) for name in names], dtype=np.int64)


def tokens_of(batch: Batch, names: Sequence[str]) -> BoolArray:
    """Tokens [N] of the domains `names`, prompts included."""
    return np.isin(batch.token_domain, domain_index(batch, names))


def domain_values(batch: Batch, by_domain: Mapping[str, float]) -> AnyArray:
    """Spread a value per domain over the tokens -> [N] float64; 0 for domains that are not named."""
    table = np.array([by_domain.get(name, 0.0) for name in batch.domains], dtype=np.float64)
    return table[batch.token_domain]


def known_domains(batch: Batch, algorithms: Mapping[str, DomainAlgorithm]) -> list[str]:
    """Names of the batch's domains that have rollouts.

    Raises:
        ConfigError: one of them has no algorithm.
    """
    present = [batch.domains[i] for i in np.unique(batch.rollout_domain)]
    missing = [name for name in present if name not in algorithms]
    if missing:
        raise ConfigError(f"no algorithm for domain '{missing[0]}'; there are: {', '.join(sorted(algorithms))}")
    return present


def dense_rewards(
    batch: Batch, algorithms: Mapping[str, DomainAlgorithm], kl_coefs: Mapping[str, float]
) -> tuple[FloatArray, dict[str, AnyArray]]:
    """Rewards per token [N]: the column `token_rewards` where the batch has one, minus KL where it is a reward.

    Returns:
        the rewards, and by domain the KL at its sampled tokens.
    """
    rewards = np.array(batch.columns.get("token_rewards", np.zeros(batch.n_tokens)), dtype=np.float64)
    measured: dict[str, AnyArray] = {}
    for name in known_domains(batch, algorithms):
        kl = algorithms[name].config.kl
        if kl.coef == 0 or kl.where != "reward":
            continue
        here = tokens_of(batch, [name]) & batch.response_mask
        estimate = kl_reward(column(batch, "old_logprobs"), column(batch, "ref_logprobs"), kl.estimator)
        rewards[here] -= kl_coefs[name] * estimate[here]
        measured[name] = estimate[here]
    return rewards.astype(np.float32), measured


def correction_column(batch: Batch, algorithms: Mapping[str, DomainAlgorithm]) -> FloatArray:
    """Trainer/sampler correction weights [N]; 1 where a domain asks for none and off the loss mask."""
    weights = np.ones(batch.n_tokens, np.float32)
    names = [n for n in known_domains(batch, algorithms) if algorithms[n].config.correction.kind != "none"]
    for members in partition(names, lambda n: algorithms[n].config.correction):
        config = algorithms[members[0]].config.correction
        here = tokens_of(batch, members)
        computed = correction_weights(
            config.kind,
            column(batch, "old_logprobs"),
            batch.rollout_logprobs,
            batch.loss_mask,
            batch.offsets,
            low=config.low,
            high=config.high,
        )
        weights[here] = computed[here]
    return weights


def estimate(batch: Batch, algorithms: Mapping[str, DomainAlgorithm], token_rewards: FloatArray) -> Advantages:
    """Run each distinct estimator once, over the rollouts of all domains that share it.

    Raises:
        ComponentError: an estimator raised, or returned the wrong shape or a value that is not finite.
    """
    advantages = np.zeros(batch.n_tokens, np.float32)
    returns: FloatArray | None = None
    for members in partition(known_domains(batch, algorithms), lambda n: algorithms[n].config.advantage):
        algorithm = algorithms[members[0]]
        part = _Part.of(batch, np.isin(batch.rollout_domain, domain_index(batch, members)))
        label = f"advantage estimator '{algorithm.config.advantage.label}' (domains {', '.join(members)})"
        result = _call(algorithm, part.inputs(batch, algorithm, token_rewards), label)
        advantages[part.tokens] = _checked(result.advantages, int(part.tokens.sum()), label)
        if result.returns is not None:
            returns = np.zeros(batch.n_tokens, np.float32) if returns is None else returns
            returns[part.tokens] = _checked(result.returns, int(part.tokens.sum()), f"{label}: returns")
    return Advantages(advantages, returns)


@dataclass(frozen=True)
class _Part:
    """Some rollouts of a batch and the segments and tokens that belong to them."""

    rollouts: BoolArray
    segments: BoolArray
    tokens: BoolArray

    @classmethod
    def of(cls, batch: Batch, rollouts: BoolArray) -> _Part:
        segments = rollouts[batch.segment_rollout]
        return cls(rollouts, segments, segments[batch.token_segment])

    def inputs(self, batch: Batch, algorithm: DomainAlgorithm, token_rewards: FloatArray) -> AdvantageInputs:
        needed = requirements_of(algorithm.advantage)
        row = np.cumsum(self.rollouts) - 1
        return AdvantageInputs(
            rewards=batch.rewards[self.rollouts],
            groups=np.unique(batch.rollout_group[self.rollouts], return_inverse=True)[1].astype(np.int64),
            offsets=np.concatenate([[0], np.cumsum(batch.lengths[self.segments])]).astype(np.int64),
            segment_rollout=row[batch.segment_rollout[self.segments]].astype(np.int64),
            response_mask=batch.response_mask[self.tokens],
            token_rewards=token_rewards[self.tokens],
            values=column(batch, "values")[self.tokens] if "values" in needed else None,
            greedy_rewards=column(batch, "greedy_rewards")[self.rollouts] if "greedy_rewards" in needed else None,
            columns={name: self._cut(batch, name) for name in sorted(needed - _OWN_FIELDS)},
        )

    def _cut(self, batch: Batch, name: str) -> AnyArray:
        if name == "rollout_logprobs":
            return batch.rollout_logprobs[self.tokens]
        values = column(batch, name)
        level = batch.specs[name].level
        rows = {"token": self.tokens, "segment": self.segments, "rollout": self.rollouts}.get(level)
        if rows is None:
            raise ConfigError(f"an advantage estimator cannot read column '{name}' of level '{level}'")
        return values[rows]


def _call(algorithm: DomainAlgorithm, inputs: AdvantageInputs, label: str) -> Advantages:
    try:
        result = algorithm.advantage(inputs)
    except RollError as error:
        error.add_note(f"raised by {label}")
        raise
    except Exception as error:
        raise ComponentError(f"{label} raised {type(error).__name__}: {error}") from error
    return result if isinstance(result, Advantages) else Advantages(result)


def _checked(values: AnyArray, size: int, label: str) -> AnyArray:
    array = np.asarray(values)
    if array.shape != (size,):
        raise ComponentError(f"{label} returned shape {array.shape}, expected one value per token: ({size},)")
    if not np.isfinite(array).all():
        raise ComponentError(f"{label} returned {int((~np.isfinite(array)).sum())} values that are not finite")
    return array
