"""Rewards of a finished group: every component's value, kept apart as a record on each rollout."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roll_core.contracts import RewardFunction
from roll_core.types import RewardRecord, Rollout, RolloutGroup, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One term of a domain's reward: `weight * fn(group)`."""

    name: str
    fn: RewardFunction
    weight: float = 1.0


class RewardFailure(Exception):  # noqa: N818 - not raised to users; it becomes an error verdict
    """A reward function raised, or returned something other than one finite number or None per rollout."""


def numbered(components: Sequence[RewardComponent]) -> tuple[RewardComponent, ...]:
    """The components with names made unique: the second `format_regex` is called `format_regex_2`."""
    seen: dict[str, int] = {}
    result = []
    for component in components:
        count = seen[component.name] = seen.get(component.name, 0) + 1
        result.append(component if count == 1 else replace(component, name=f"{component.name}_{count}"))
    return tuple(result)


def compose_group(group: RolloutGroup, components: Sequence[RewardComponent]) -> None:
    """Fill `rewards` of the group's scored rollouts, and of its greedy baseline if that is scored.

    A reward function sees a group of the scored rollouts only (the baseline: a group of itself). When one fails, the
    machinery has failed: the verdicts of the whole group become `ERROR` with detail "reward_failed", so that no
    rollout of it is trained on with part of its reward, and none is punished.
    """
    scored = group.scored
    greedy = [group.greedy] if group.greedy is not None and group.greedy.is_scored else []
    for rollout in (*group.rollouts, *greedy):
        rollout.rewards = []
    try:
        records = [_records(group, rollouts, components) for rollouts in (scored, greedy) if rollouts]
    except RewardFailure as failure:
        logger.warning("group of ticket %d loses its scores: %s", group.ticket.id, failure, exc_info=failure.__cause__)
        for rollout in (*scored, *greedy):
            _fail(rollout, str(failure))
        return
    for rollout, own in zip((*scored, *greedy), (own for part in records for own in part), strict=True):
        rollout.rewards = own


def _records(
    group: RolloutGroup, rollouts: list[Rollout], components: Sequence[RewardComponent]
) -> list[list[RewardRecord]]:
    view = RolloutGroup(group.ticket, group.prompt, list(rollouts))
    records: list[list[RewardRecord]] = [[] for _ in rollouts]
    for component in components:
        for own, value in zip(records, _values(component, view), strict=True):
            if value is not None:
                own.append(RewardRecord(component.name, value, component.weight))
    return records


def _values(component: RewardComponent, view: RolloutGroup) -> list[float | None]:
    try:
        values = list(component.fn(view))
        floats = [None if value is None else float(value) for value in values]
    except Exception as error:
        raise RewardFailure(f"reward '{component.name}' raised {type(error).__name__}: {error}") from error
    if len(floats) != len(view.rollouts):
        raise RewardFailure(f"reward '{component.name}' gave {len(floats)} values for {len(view.rollouts)} rollouts")
    for value in floats:
        if value is not None and not math.isfinite(value):
            raise RewardFailure(f"reward '{component.name}' gave {value!r}")
    return floats


def _fail(rollout: Rollout, reason: str) -> None:
    verdict = Verdict.error(reason, detail="reward_failed")
    if (old := rollout.verdict) is not None:
        verdict = verdict.stamped(verifier=old.verifier, version=old.version, seconds=old.seconds)
    rollout.verdict = verdict
