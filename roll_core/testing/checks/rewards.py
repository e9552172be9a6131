"""Checks of `contracts.RewardFunction`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roll_core.testing.cases import RewardCases
from roll_core.testing.fakes import make_group
from roll_core.testing.kit import CheckFailed, Subject, check
from roll_core.testing.snapshot import snapshot
from roll_core.types import RolloutGroup

_TEXTS = ("so \\boxed{4}", "", "4", "<answer>5</answer>", "no idea, sorry")


def _groups(subject: Subject) -> list[RolloutGroup]:
    own = list(subject.cases.groups) if isinstance(subject.cases, RewardCases) else []
    return [
        *own,
        make_group([1.0, 0.0, 0.5, 0.0, 1.0], responses=_TEXTS),
        make_group([1.0], ticket=1),
        make_group([0.0, 0.0], ticket=2, lengths=[1, 60]),
    ]


def _values(reward: Any, group: RolloutGroup) -> Sequence[float | None]:
    values = reward(group)
    if len(values) != len(group.rollouts):
        raise CheckFailed(f"{len(values)} values for a group of {len(group.rollouts)}: return one per rollout, or None")
    return list(values)


def _same(a: Sequence[float | None], b: Sequence[float | None]) -> bool:
    pairs = zip(a, b, strict=True)
    return all(
        repr(x) == repr(y) or (x is not None and y is not None and math.isclose(x, y, rel_tol=1e-6)) for x, y in pairs
    )


@check("rewards")
def gives_one_value_per_rollout(subject: Subject) -> None:
    """The result is as long as the group."""
    reward = subject.build()
    for group in _groups(subject):
        _values(reward, group)


@check("rewards")
def gives_finite_values(subject: Subject) -> None:
    """Every value is a finite number or None."""
    reward = subject.build()
    for group in _groups(subject):
        for value in reward(group):
            if value is not None and not math.isfinite(value):
                raise CheckFailed(f"a value is {value!r}: give None where this component has nothing to say")


@check("rewards")
def follows_a_permutation(subject: Subject) -> None:
    """Permuting the group permutes the result."""
    reward = subject.build()
    for group in _groups(subject):
        n = len(group.rollouts)
        order = sorted(range(n), key=lambda i: (7 * i + 3) % (n + 1))
        moved = replace(group, rollouts=[group.rollouts[i] for i in order])
        before, after = list(reward(group)), list(reward(moved))
        if len(before) == len(after) == n and not _same([before[i] for i in order], after):
            raise CheckFailed(f"values {before} became {after} when the group was reordered as {order}")


@check("rewards")
def leaves_its_input_alone(subject: Subject) -> None:
    """The group is not changed."""
    reward = subject.build()
    for group in _groups(subject):
        before = snapshot(group)
        reward(group)
        if snapshot(group) != before:
            raise CheckFailed("the group was changed: work on copies; the engine keeps the records itself")


@check("rewards")
def is_deterministic(subject: Subject) -> None:
    """The same group gets the same values, twice and from a second instance."""
    first, second = subject.build(), subject.build()
    for group in _groups(subject):
        found = [list(reward(group)) for reward in (first, first, second)]
        if len(set(map(repr, found))) > 1:
            raise CheckFailed(f"one group got different values: {found}")
