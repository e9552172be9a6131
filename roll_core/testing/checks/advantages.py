"""Checks of `contracts.AdvantageEstimator`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roll_core.contracts import requirements_of
from roll_core.testing.cases import AdvantageCases
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check
from roll_core.testing.snapshot import snapshot
from roll_core.types import AdvantageInputs, Advantages, AnyArray, BoolArray, FloatArray

_TOLERANCE = 1e-4
_SCOPES = ("group", "segment", "batch")


@dataclass(frozen=True, slots=True)
class _Row:
    """One rollout before it is laid out: its segments' masks and what belongs to each of its tokens."""

    group: int
    reward: float
    masks: tuple[BoolArray, ...]
    token_rewards: FloatArray
    values: FloatArray
    greedy: float


def _rows(rewards: Sequence[float], groups: Sequence[int], *, dense: float = 0.1, seed: int = 0) -> list[_Row]:
    """Rollouts of one or two segments, with unsampled tokens before, between and after the sampled ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        shapes = [(2, 2 + i % 4, 1)] if i % 3 else [(1, 2, 0), (3, 1 + i % 2, 2)]
        masks = tuple(np.arange(before + n + after) >= before for before, n, after in shapes)
        masks = tuple(m & (np.arange(len(m)) < b + n) for m, (b, n, _) in zip(masks, shapes, strict=True))
        mask = np.concatenate(masks)
        noise = rng.standard_normal((2, len(mask))).astype(np.float32)
        rows.append(_Row(group, reward, masks, dense * noise[0] * mask, noise[1], float(0.25 * group)))
    return rows


def _lay_out(rows: Sequence[_Row], needs: frozenset[str]) -> AdvantageInputs:
    masks = [m for row in rows for m in row.masks]
    labels: dict[int, int] = {}
    groups = [labels.setdefault(row.group, len(labels)) for row in rows]
    greedy = np.array([row.greedy for row in rows], np.float32)
    return AdvantageInputs(
        rewards=np.array([row.reward for row in rows], np.float32),
        groups=np.array(groups, np.int64),
        offsets=np.concatenate([[0], np.cumsum([len(m) for m in masks])]).astype(np.int64),
        segment_rollout=np.repeat(np.arange(len(rows)), [len(row.masks) for row in rows]).astype(np.int64),
        response_mask=np.concatenate(masks),
        token_rewards=np.concatenate([row.token_rewards for row in rows]).astype(np.float32),
        values=np.concatenate([row.values for row in rows]) if "values" in needs else None,
        greedy_rewards=greedy if "greedy_rewards" in needs else None,
    )


_REWARDS = (1.0, 0.0, 0.5, 0.0, 0.2, 0.9, 0.4, 1.0, 0.0)
_GROUPS = (0, 0, 0, 0, 1, 1, 1, 2, 2)


def _run(estimator: Any, rows: Sequence[_Row]) -> AnyArray:
    inputs = _lay_out(rows, requirements_of(estimator))
    result = estimator(inputs)
    array = result.advantages if isinstance(result, Advantages) else result
    n = int(inputs.offsets[-1])
    if not isinstance(array, np.ndarray) or array.shape != (n,):
        raise CheckFailed(f"returned {_shape(array)}: return a float array [N] with N = {n}")
    return array.astype(np.float64)


def _shape(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _split(array: AnyArray, rows: Sequence[_Row]) -> list[AnyArray]:
    sizes = [sum(len(m) for m in row.masks) for row in rows]
    return np.split(array, np.cumsum(sizes)[:-1])


def _claim(subject: Subject, built: Any, name: str, default: Any) -> Any:
    """What the cases, else the built object, else the default say about an estimator."""
    stated = getattr(subject.cases, name, None) if isinstance(subject.cases, AdvantageCases) else None
    return getattr(built, name, default) if stated is None else stated


@check("advantages")
def gives_one_value_per_token(subject: Subject) -> None:
    """The result is a float array [N], and so are the returns where there are any."""
    built = subject.build()
    rows = _rows(_REWARDS, _GROUPS)
    n = len(_run(built, rows))
    result = built(_lay_out(rows, requirements_of(built)))
    if isinstance(result, Advantages) and result.returns is not None and result.returns.shape != (n,):
        raise CheckFailed(f"returns is {_shape(result.returns)}: it needs one value per token, N = {n}")


@check("advantages")
def is_zero_off_the_mask(subject: Subject) -> None:
    """Tokens the policy did not sample get 0."""
    rows = _rows(_REWARDS, _GROUPS)
    array = _run(subject.build(), rows)
    mask = np.concatenate([m for row in rows for m in row.masks])
    if np.any(array[~mask] != 0.0):
        raise CheckFailed("unsampled tokens got an advantage: multiply by response_mask (AdvantageInputs.broadcast)")


@check("advantages")
def is_finite(subject: Subject) -> None:
    """Equal, huge, tiny and negative rewards, groups of one, and a batch of one give finite numbers."""
    built = subject.build()
    batches: list[tuple[Sequence[float], Sequence[int]]] = [
        ((0.0, 0.0, 0.0), (0, 0, 0)),
        ((1.0, 1.0, 0.3), (0, 0, 1)),
        ((1e6, -1e6, 1e-8, -1e-8), (0, 0, 1, 1)),
        ((-1.0, -1.0, 0.0, 0.0), (0, 0, 1, 2)),
        ((0.7,), (0,)),
    ]
    for rewards, groups in batches:
        if not np.isfinite(_run(built, _rows(rewards, groups, dense=0.0))).all():
            raise CheckFailed(f"rewards {rewards} in groups {groups} gave NaN or infinity: guard the division")


@check("advantages")
def is_zero_for_equal_rewards(subject: Subject) -> None:
    """A group whose rewards are all equal, or a group of one, gives 0 (where `is_centered`)."""
    built = subject.build()
    if not _claim(subject, built, "is_centered", True):
        raise CheckSkipped("it declares is_centered = False")
    rows = _rows((0.1, 0.1, 0.1, 1.0, 1.0, 0.7, 0.0, 0.0), (0, 0, 0, 1, 1, 2, 3, 3), dense=0.0)
    worst = float(np.abs(_run(built, rows)).max())
    if worst > _TOLERANCE:
        raise CheckFailed(
            f"equal rewards within every group gave an advantage of {worst:.3g}: subtract the group's mean, or "
            "declare is_centered = False on the class"
        )


@check("advantages")
def follows_a_permutation(subject: Subject) -> None:
    """Reordering the rollouts of a group, and the groups, reorders the result."""
    built = subject.build()
    rows = _rows(_REWARDS, _GROUPS)
    order = [7, 8, 6, 4, 5, 2, 0, 3, 1]
    before = _split(_run(built, rows), rows)
    moved = [rows[i] for i in order]
    after = _split(_run(built, moved), moved)
    for place, i in enumerate(order):
        if not np.allclose(before[i], after[place], atol=_TOLERANCE, rtol=_TOLERANCE):
            raise CheckFailed(f"rollout {i} got {before[i]}, and {after[place]} after the batch was reordered")


@check("advantages")
def keeps_to_its_scope(subject: Subject) -> None:
    """Changing one group (or one rollout, where scope is "segment") leaves the advantages of the others alone."""
    built = subject.build()
    scope = _claim(subject, built, "scope", "group")
    if scope not in _SCOPES:
        raise CheckFailed(f"scope is {scope!r}: one of {', '.join(_SCOPES)}")
    if scope == "batch":
        raise CheckSkipped("it declares scope = 'batch'")
    rows = _rows(_REWARDS, _GROUPS)
    before = _split(_run(built, rows), rows)
    for touched in (0, 5, 8):
        group = rows[touched].group
        is_touched = [i == touched if scope == "segment" else r.group == group for i, r in enumerate(rows)]
        changed = [replace(r, reward=r.reward + 0.5 + i) if is_touched[i] else r for i, r in enumerate(rows)]
        after = _split(_run(built, changed), changed)
        for i, flag in enumerate(is_touched):
            if not flag and not np.allclose(before[i], after[i], atol=1e-7, rtol=1e-6):
                raise CheckFailed(
                    f"rollout {i} (group {rows[i].group}) changed with the rewards of group {group}: "
                    "declare scope = 'batch' on the class if that is meant"
                )


@check("advantages")
def leaves_its_input_alone(subject: Subject) -> None:
    """The arrays it is given are not changed."""
    built = subject.build()
    inputs = _lay_out(_rows(_REWARDS, _GROUPS), requirements_of(built))
    before = snapshot(inputs)
    built(inputs)
    if snapshot(inputs) != before:
        raise CheckFailed("its input arrays were changed: copy before writing")
