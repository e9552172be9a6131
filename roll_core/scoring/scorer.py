"""Routes each rollout to its domain's verifier and each finished group to its domain's rewards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import ConfigError, unknown_name
from roll_core.scoring.compose import RewardComponent, compose_group, numbered
from roll_core.scoring.pool import VerdictPool
from roll_core.scoring.statistics import reward_statistics, unscored_alarms
from roll_core.types import Rollout, RolloutGroup

_RESERVED = frozenset({"score", "total", "overlong"})


@dataclass(frozen=True, slots=True)
class DomainScoring:
    """How one domain is judged.

    Args:
        verifier: the verifier's key in the pool.
        rewards: components whose weighted values add up to the reward.
        options: further keyword arguments of every `verify` call.
    """

    verifier: str
    rewards: Sequence[RewardComponent]
    options: Mapping[str, Any] = field(default_factory=dict)


class Scorer:
    """Scores rollouts as they end, and composes the rewards of a group when all of it has ended.

    Args:
        domains: how each domain is judged.
        pool: a started pool that knows the domains' verifiers.
        alarm_rate: share of a step's rollouts that may stay without a score before `alarms` speaks.

    Raises:
        ConfigError: a reward component carries a reserved name.
    """

    def __init__(self, domains: Mapping[str, DomainScoring], pool: VerdictPool, *, alarm_rate: float = 0.05) -> None:
        self._pool = pool
        self._alarm_rate = alarm_rate
        self._domains = dict(domains)
        self._rewards = {domain: numbered(scoring.rewards) for domain, scoring in domains.items()}
        for domain, rewards in self._rewards.items():
            for name in _RESERVED.intersection(reward.name for reward in rewards):
                raise ConfigError(
                    f"domains.{domain}.rewards: a reward component cannot be called '{name}', which the engine "
                    "uses itself; rename it"
                )

    async def score(self, rollout: Rollout) -> None:
        """Judge one rollout: sets `verdict`, and `timing["score_s"]` (seconds, waiting for a worker included).

        Raises:
            UnknownNameError: the rollout's domain is not among `domains`.
        """
        scoring = self._scoring(rollout.prompt.domain)
        started = time.perf_counter()
        rollout.verdict = await self._pool.verify(
            scoring.verifier,
            rollout.response,
            rollout.prompt.reference,
            prompt=rollout.prompt,
            rollout=rollout,
            **scoring.options,
        )
        rollout.timing["score_s"] = time.perf_counter() - started

    def compose(self, group: RolloutGroup) -> None:
        """Fill `rewards` of a finished group's scored rollouts and greedy baseline (`compose.compose_group`)."""
        self._scoring(group.prompt.domain)
        compose_group(group, self._rewards[group.prompt.domain])

    def statistics(self, groups: Iterable[RolloutGroup]) -> dict[str, float]:
        """Metrics of a step's groups (`statistics.reward_statistics`), and of the pool."""
        return reward_statistics(groups) | self._pool.take_metrics()

    def alarms(self, groups: Iterable[RolloutGroup]) -> list[str]:
        """Sentences about domains in which too many rollouts stay without a score; usually none.

        Raises:
            RollError: rollouts stay without a score because nobody is left to judge; nothing may be trained on them.
        """
        self._pool.check()
        return unscored_alarms(groups, self._alarm_rate)

    def _scoring(self, domain: str) -> DomainScoring:
        if domain not in self._domains:
            raise unknown_name("domain", domain, self._domains)
        return self._domains[domain]
