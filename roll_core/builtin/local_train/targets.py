"""What each scored token is compared with: the distribution its domain's sampling parameters describe."""

from __future__ import annotations

import numpy as np
import torch

from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.logprob import KeptSets, Targets
from roll_core.errors import BackendError
from roll_core.types import Batch, IndexArray, SamplingParams


def targets_of(batch: Batch, layout: Layout, device: torch.device, *, sampled: bool = True) -> Targets:
    """The scored tokens of a micro-batch [m] with temperature and, if `sampled`, kept sets.

    A domain without an entry in `batch.sampling`, or sampled greedily, is scored under the plain softmax.

    Raises:
        BackendError: a domain was sampled with top-p or top-k but the batch has no kept sets.
    """
    places = layout.source[layout.scored]
    tokens = torch.as_tensor(batch.token_ids[places].astype(np.int64), device=device)
    plain = SamplingParams()
    sampling = [batch.sampling.get(name, plain) for name in batch.domains]
    domains = batch.token_domain[places]
    by_domain = np.array([s.temperature if s.temperature > 0 else 1.0 for s in sampling], dtype=np.float32)
    temperatures = by_domain[domains]
    warm = torch.as_tensor(temperatures, device=device) if (temperatures != 1.0).any() else None
    if not sampled:
        return Targets(tokens, warm)
    if "keep_counts" in batch.columns:
        return Targets(tokens, warm, _kept_sets(batch, places, device))
    for index in np.unique(domains):
        if sampling[index].is_truncated:
            raise BackendError(
                f"domain '{batch.domains[index]}' samples with top_p or top_k, but its rollouts carry no kept sets "
                "(columns keep_counts and keep_ids), so their log-probs cannot be recomputed; use a rollout backend "
                "that returns them, or set top_p: 1 and top_k: 0"
            )
    return Targets(tokens, warm)


def _kept_sets(batch: Batch, places: IndexArray, device: torch.device) -> KeptSets | None:
    counts = batch.columns["keep_counts"].astype(np.int64)
    mine = counts[places]
    if not mine.any():
        return None
    starts = (np.cumsum(counts) - counts)[places]
    offsets = np.concatenate([[0], np.cumsum(mine)]).astype(np.int64)
    picked = np.repeat(starts - offsets[:-1], mine) + np.arange(offsets[-1])
    ids = batch.columns["keep_ids"][picked].astype(np.int64)
    return KeptSets(torch.as_tensor(ids, device=device), torch.as_tensor(offsets))
