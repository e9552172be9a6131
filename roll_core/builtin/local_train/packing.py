"""Splits the segments of a mini-batch into micro-batches of a bounded number of computed tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from roll_core.builtin.local_train.layout import prompt_keys, prompt_lengths
from roll_core.types import Batch, IndexArray


def plan_packed(batch: Batch, segments: IndexArray, micro_tokens: int) -> list[IndexArray]:
    """Micro-batches for the packed layout: segments with one prompt stay together where they fit.

    Deterministic, and balanced by the number of rows computed. A single segment above the budget is a micro-batch of
    its own. Segments keep their order inside a micro-batch.
    """
    units = _units(batch, segments, micro_tokens)
    total = sum(cost for cost, _ in units)
    bins = max(1, math.ceil(total / micro_tokens))
    while True:
        filled = _balance(units, bins)
        if bins >= len(units) or max(cost for cost, _ in filled) <= micro_tokens:
            return [np.sort(np.array(members, dtype=np.int64)) for _, members in filled if members]
        bins += 1


def plan_padded(batch: Batch, segments: IndexArray, micro_tokens: int) -> list[IndexArray]:
    """Micro-batches for the padded layout: segments of similar length together, so that little is padding."""
    lengths = batch.lengths[segments]
    plan: list[list[int]] = []
    width = 0
    for i in np.lexsort((segments, -lengths)):
        if not plan or (len(plan[-1]) + 1) * width > micro_tokens:
            plan.append([])
            width = max(1, int(lengths[i]) - 1)
        plan[-1].append(int(segments[i]))
    return [np.sort(np.array(members, dtype=np.int64)) for members in plan]


def _units(batch: Batch, segments: IndexArray, micro_tokens: int) -> list[tuple[int, list[int]]]:
    """Sets of segments with one prompt, cut to the budget, with the rows each needs."""
    prompts, lengths = prompt_lengths(batch), batch.lengths
    by_prompt: dict[tuple[int, bytes], list[int]] = {}
    for segment, key in zip(segments, prompt_keys(batch, segments), strict=True):
        by_prompt.setdefault(key, []).append(int(segment))
    units: list[tuple[int, list[int]]] = []
    for members in by_prompt.values():
        prompt = int(prompts[members[0]])
        cost, unit = prompt, list[int]()
        for segment in members:
            own = max(0, int(lengths[segment]) - 1 - prompt)
            if unit and cost + own > micro_tokens:
                units.append((cost, unit))
                cost, unit = prompt, []
            cost += own
            unit.append(segment)
        units.append((cost, unit))
    return units


def _balance(units: Sequence[tuple[int, list[int]]], bins: int) -> list[tuple[int, list[int]]]:
    """Give the largest unit left to the emptiest bin, again and again."""
    filled: list[tuple[int, list[int]]] = [(0, []) for _ in range(bins)]
    for cost, members in sorted(units, key=lambda unit: (-unit[0], unit[1][0])):
        k = min(range(bins), key=lambda i: (filled[i][0], i))
        filled[k] = (filled[k][0] + cost, [*filled[k][1], *members])
    return filled
