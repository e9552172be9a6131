"""Ragged work shared out evenly: how many tokens each rank gets decides how long the others wait for it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from roll_core.errors import ConfigError


def balanced_shards(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Share items out over ranks so that the costliest rank costs as little as possible.

    Longest processing time first (Graham 1969, doi:10.1137/0117039): items by falling cost, each to the rank with the
    least so far. Deterministic (ties by index), and the costliest rank exceeds the mean by less than one largest item;
    it is at most 4/3 - 1/(3 ranks) times the best possible.

    Args:
        costs: cost of each item, for instance its tokens; not negative.
        ranks: how many shards.

    Returns:
        Indices of each rank's items, rising. Ranks beyond the number of items are left empty.

    Raises:
        ConfigError: `ranks` is not positive, or a cost is negative.
    """
    if ranks < 1:
        raise ConfigError(f"work cannot be shared out over {ranks} ranks")
    if any(cost < 0 for cost in costs):
        raise ConfigError("costs must not be negative")
    shards: list[list[int]] = [[] for _ in range(ranks)]
    loads: list[tuple[float, int, int]] = [(0.0, 0, rank) for rank in range(ranks)]
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, count, rank = loads[0]
        heapq.heapreplace(loads, (load + costs[index], count + 1, rank))
        shards[rank].append(index)
    return [sorted(shard) for shard in shards]


def micro_batches(costs: Sequence[float], budget: float, *, count: int | None = None) -> list[list[int]]:
    """Share one rank's items out over micro-batches of at most `budget` each.

    Args:
        costs: cost of each item.
        budget: most that one micro-batch may cost; an item that costs more gets one for itself.
        count: this many micro-batches, empty ones at the end where items are short; None takes the fewest that
            first-fit by falling cost needs (at most 11/9 of the fewest possible, plus one).

    Returns:
        Indices of each micro-batch's items, rising.

    Raises:
        ConfigError: `count` is too small for the budget.
    """
    batches: list[list[int]] = []
    loads: list[float] = []
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        fitting = next((k for k, load in enumerate(loads) if load + costs[index] <= budget), len(loads))
        if fitting == len(loads):
            batches.append([])
            loads.append(0.0)
        batches[fitting].append(index)
        loads[fitting] += costs[index]
    if count is not None:
        if count < len(batches):
            raise ConfigError(f"{len(batches)} micro-batches of {budget:g} are needed, more than the {count} asked for")
        batches = _spread(batches, costs, count)
    return [sorted(batch) for batch in batches]


def equal_micro_batches(
    costs: Sequence[float], shards: Sequence[Sequence[int]], budget: float
) -> list[list[list[int]]]:
    """Micro-batches of every rank, equally many on each, since ranks meet in every micro-batch's collectives.

    Args:
        costs: cost of each item of the whole batch.
        shards: items of each rank, as `balanced_shards` gives them.
        budget: most that one micro-batch may cost.

    Returns:
        For each rank its micro-batches of indices into `costs`; some are empty where a rank has fewer items than
        another rank has micro-batches.
    """
    own = [[costs[index] for index in shard] for shard in shards]
    count = max((len(micro_batches(each, budget)) for each in own), default=0)
    split = [micro_batches(each, budget, count=count) for each in own]
    return [
        [[shard[position] for position in batch] for batch in batches]
        for shard, batches in zip(shards, split, strict=True)
    ]


def _spread(batches: list[list[int]], costs: Sequence[float], count: int) -> list[list[int]]:
    """More batches out of the same items: the costliest that can be divided is halved by cost, again and again."""
    while len(batches) < count:
        divisible = [k for k, batch in enumerate(batches) if len(batch) > 1]
        if not divisible:
            return [*batches, *([] for _ in range(count - len(batches)))]
        largest = max(divisible, key=lambda k: (sum(costs[i] for i in batches[k]), -k))
        items = batches[largest]
        halves = balanced_shards([costs[i] for i in items], 2)
        batches[largest] = [items[p] for p in halves[0]]
        batches.append([items[p] for p in halves[1]])
    return batches
