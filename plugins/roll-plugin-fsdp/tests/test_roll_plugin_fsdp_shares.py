"""The segments of a batch are shared out evenly, and a share holds everything of its own."""

from __future__ import annotations

import numpy as np
import pytest
from fsdp_cases import build_batch, objective

from roll_core.errors import BackendError
from roll_core.types import ColumnSpec
from roll_plugin_fsdp.shares import cut, cut_terms, places_of, shares


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 16])
def test_every_segment_has_one_rank_and_the_tokens_are_balanced(ranks) -> None:
    batch = build_batch(tuple((20, tuple(np.random.default_rng(i).integers(1, 60, 8))) for i in range(12)))
    segments = np.arange(0, batch.n_segments, 2)
    found = shares(batch, segments, ranks)
    assert len(found) == ranks
    assert np.sort(np.concatenate(found)).tolist() == segments.tolist()
    tokens = [int(batch.lengths[share].sum()) for share in found]
    assert max(tokens) < 1.2 * sum(tokens) / ranks + 80
    again = shares(batch, segments, ranks)
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def test_prompts_stay_together_where_that_is_balanced() -> None:
    batch = build_batch(tuple((40, (5,) * 4) for _ in range(16)))
    for share in shares(batch, np.arange(64), 2):
        groups = batch.rollout_group[batch.segment_rollout[share]]
        assert len(share) == 4 * len(np.unique(groups))
    alone = shares(build_batch(((40, (5,) * 4),)), np.arange(4), 4)
    assert [len(share) for share in alone] == [1, 1, 1, 1]


def test_fewer_segments_than_ranks() -> None:
    found = shares(build_batch(((3, (4,)),)), np.arange(1), 3)
    assert sorted(len(share) for share in found) == [0, 0, 1]


def test_a_cut_batch_holds_the_same_values() -> None:
    batch = build_batch()
    rng = np.random.default_rng(0)
    batch.add("per_segment", rng.random(batch.n_segments), ColumnSpec("per_segment", level="segment"))
    batch.add("per_rollout", rng.random(batch.n_rollouts), ColumnSpec("per_rollout", level="rollout"))
    counts = np.where(batch.response_mask, np.arange(batch.n_tokens) % 3, 0).astype(np.int32)
    batch.add("keep_counts", counts)
    batch.columns["keep_ids"] = np.arange(counts.sum(), dtype=np.int32)
    chosen = np.array([1, 4, 9])
    part = cut(batch, chosen)
    places = places_of(batch, chosen)
    assert part.n_segments == part.n_rollouts == 3
    assert part.lengths.tolist() == batch.lengths[chosen].tolist()
    assert part.token_ids.tolist() == batch.token_ids[places].tolist()
    assert part.rewards.tolist() == batch.rewards[chosen].tolist()
    assert part.columns["per_segment"].tolist() == batch.columns["per_segment"][chosen].tolist()
    assert part.columns["per_rollout"].tolist() == batch.columns["per_rollout"][chosen].tolist()
    starts = np.cumsum(counts) - counts
    kept = [i for p in places for i in range(starts[p], starts[p] + counts[p])]
    assert part.columns["keep_ids"].tolist() == kept
    term = cut_terms(objective(batch).terms, places)[0]
    assert term.weights.tolist() == objective(batch).terms[0].weights[places].tolist()
    assert (term.advantages, term.mask) == (None, None)
    empty = cut(batch, np.zeros(0, np.int64))
    assert (empty.n_tokens, empty.n_segments, len(empty.columns["keep_ids"])) == (0, 0, 0)
    batch.columns["short"] = np.zeros(3)
    with pytest.raises(BackendError, match="'short' has 3 rows"):
        cut(batch, chosen)
