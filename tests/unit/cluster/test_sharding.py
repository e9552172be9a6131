from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_core.cluster.sharding import balanced_shards, equal_micro_batches, micro_batches
from roll_core.errors import ConfigError

costs = st.lists(st.integers(0, 1000), max_size=60)


@given(costs, st.integers(1, 9))
def test_shards_are_balanced_and_whole(sizes, ranks):
    shards = balanced_shards(sizes, ranks)
    assert len(shards) == ranks and sorted(i for shard in shards for i in shard) == list(range(len(sizes)))
    assert all(shard == sorted(shard) for shard in shards)
    largest = max((sum(sizes[i] for i in shard) for shard in shards), default=0)
    assert largest <= sum(sizes) / ranks + max(sizes, default=0)
    assert shards == balanced_shards(list(sizes), ranks)


def test_equal_items_are_dealt_out_evenly():
    assert [len(shard) for shard in balanced_shards([5] * 10, 4)] == [3, 3, 2, 2]
    assert [len(shard) for shard in balanced_shards([0] * 6, 3)] == [2, 2, 2]
    assert balanced_shards([8, 7, 6, 5, 4], 2) == [[0, 3, 4], [1, 2]]
    assert balanced_shards([], 2) == [[], []]
    with pytest.raises(ConfigError, match="0 ranks"):
        balanced_shards([1], 0)
    with pytest.raises(ConfigError, match="negative"):
        balanced_shards([-1], 1)


@given(costs, st.integers(1, 1500))
def test_micro_batches_stay_in_their_budget(sizes, budget):
    batches = micro_batches(sizes, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    assert all(len(batch) == 1 or sum(sizes[i] for i in batch) <= budget for batch in batches)
    more = micro_batches(sizes, budget, count=len(batches) + 3)
    assert len(more) == len(batches) + 3
    assert sorted(i for batch in more for i in batch) == list(range(len(sizes)))
    assert all(len(batch) == 1 or sum(sizes[i] for i in batch) <= budget for batch in more if batch)


@given(costs, st.integers(1, 5), st.integers(1, 1500))
def test_every_rank_has_as_many_micro_batches(sizes, ranks, budget):
    shards = balanced_shards(sizes, ranks)
    split = equal_micro_batches(sizes, shards, budget)
    assert len({len(batches) for batches in split}) == 1
    for shard, batches in zip(shards, split, strict=True):
        assert sorted(i for batch in batches for i in batch) == shard


def test_too_few_micro_batches_are_refused():
    with pytest.raises(ConfigError, match="2 micro-batches of 5 are needed, more than the 1 asked for"):
        micro_batches([4, 4], 5, count=1)
    assert micro_batches([1], 5, count=3) == [[0], [], []]
