"""Checks of `contracts.Filter` and `contracts.EarlyFilter`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from roll_core.testing.fakes import make_group
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check
from roll_core.testing.snapshot import snapshot
from roll_core.types import RolloutGroup

_OUTCOMES = (0.0, 0.5, 1.0, None)
_LARGEST = 4


def _groups() -> Iterator[RolloutGroup]:
    for size in range(1, _LARGEST):
        for scores in itertools.product(_OUTCOMES, repeat=size):
            yield make_group(scores)


@check("filters")
def gives_a_reason_or_none(subject: Subject) -> None:
    """`reject` returns None or a short, non-empty reason, failed rollouts included."""
    built = subject.build()
    for group in _groups():
        reason = built.reject(group)
        if reason is not None and not (isinstance(reason, str) and reason.strip()):
            raise CheckFailed(f"reject returned {reason!r}: return None to admit, or a word that says why not")


@check("filters")
def is_deterministic(subject: Subject) -> None:
    """The same group gets the same decision, twice and from a second instance."""
    first, second = subject.build(), subject.build()
    for group in _groups():
        found = [built.reject(group) for built in (first, first, second)]
        if not (found[0] == found[1] == found[2]):
            raise CheckFailed(f"a group with scores {_scores(group)} got different decisions: {found}")


@check("filters")
def leaves_its_input_alone(subject: Subject) -> None:
    """The group is not changed."""
    built = subject.build()
    for group in _groups():
        before = snapshot(group)
        built.reject(group)
        if snapshot(group) != before:
            raise CheckFailed("the group was changed: a filter only decides")


@check("filters")
def is_hopeless_only_without_hope(subject: Subject) -> None:
    """Where `hopeless` gives up early, every way the missing rollouts can end is rejected."""
    built = subject.build()
    hopeless: Any = getattr(built, "hopeless", None)
    if hopeless is None:
        raise CheckSkipped("it decides on finished groups only")
    for size in range(1, _LARGEST + 1):
        for done in range(size + 1):
            for scores in itertools.product(_OUTCOMES, repeat=done):
                if hopeless(list(scores), size - done) is not None:
                    _no_completion_passes(built, scores, size - done)


def _no_completion_passes(built: Any, scores: tuple[float | None, ...], missing: int) -> None:
    for rest in itertools.product((0.0, 0.5, 1.0), repeat=missing):
        if built.reject(make_group([*scores, *rest])) is None:
            raise CheckFailed(
                f"hopeless({list(scores)}, {missing}) gave up, but with {list(rest)} the group would be admitted"
            )


def _scores(group: RolloutGroup) -> list[float | None]:
    return [r.score for r in group.rollouts]
