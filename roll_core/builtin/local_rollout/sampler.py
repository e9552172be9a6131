"""Draws one token a row from logits, with the log-probability it was drawn with.

Tokens are drawn by inverting the cumulative distribution at one uniform number per (request, position), so what a
request draws does not depend on its neighbours. Rows are worked off a few at a time: the float32 copies then stay in
the processor's cache, and no [rows, V] float32 array ever exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roll_core.errors import BackendError
from roll_core.types import IntArray, SamplingParams

_BLOCK = 128
"""Vocabulary entries summed together before the cumulative sum."""
_CHUNK_ELEMENTS = 1 << 19
"""Logits worked on at once on a CPU (2 MiB of float32)."""
_FIRST_K, _K_GROWTH = 64, 8
"""Candidates looked at for top-p, and their growth while they do not hold enough mass."""
_DRAWN_AT_ONCE = 256
_WORD = (1 << 64) - 1


class UniformStream:
    """Uniform numbers in [0, 1) of one request, addressed by position (Philox, Salmon et al. 2011)."""

    __slots__ = ("_block", "_key", "_values")

    def __init__(self, seed: int, run_seed: int) -> None:
        self._key = (seed & _WORD) | ((run_seed & _WORD) << 64)
        self._block = -1
        self._values: list[float] = []

    def at(self, position: int) -> float:
        """The number for response position `position`."""
        block, offset = divmod(position, _DRAWN_AT_ONCE)
        if block != self._block:
            bits = np.random.Philox(key=self._key, counter=block * _DRAWN_AT_ONCE)
            self._values = np.random.Generator(bits).random(_DRAWN_AT_ONCE).tolist()
            self._block = block
        return self._values[offset]


@dataclass(frozen=True, slots=True)
class Draw:
    """Tokens [n], their log-probabilities [n], and per row the kept vocabulary (None = all of it)."""

    tokens: list[int]
    logprobs: list[float]
    kept: list[IntArray | None]


def sample(logits: Tensor, sampling: Sequence[SamplingParams], uniforms: Sequence[float]) -> Draw:
    """Draw one token for each row.

    Args:
        logits: [n, V], any float dtype; unchanged.
        sampling: [n]. Temperature first, then top-k, then top-p over what top-k kept; ties with the last kept token
            are kept too, so that a kept set does not depend on the order of equal logits.
        uniforms: [n] in [0, 1).

    Raises:
        BackendError: a row holds NaN or +infinity.
    """
    n, vocabulary = logits.shape
    rows = max(1, _CHUNK_ELEMENTS // vocabulary) if logits.device.type == "cpu" else n
    drawn = Draw([], [], [])
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        _draw_rows(logits[part], sampling[part], uniforms[part], drawn)
    return drawn


def _draw_rows(logits: Tensor, sampling: Sequence[SamplingParams], uniforms: Sequence[float], drawn: Draw) -> None:
    scores = _scaled_scores(logits, sampling)
    weights = scores.exp()
    kept = _truncate(scores, weights, sampling)
    target = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    tokens, totals = _invert(weights, target)
    greedy = [row for row, one in enumerate(sampling) if one.temperature == 0]
    if greedy:
        tokens[greedy] = logits[greedy].argmax(-1)
    chosen = scores.gather(1, tokens[:, None])[:, 0].tolist()
    values = [_less_log(score, total) for score, total in zip(chosen, totals.tolist(), strict=True)]
    if not all(value <= 0.5 for value in values):  # NaN compares false
        raise BackendError("the model's logits are not finite; its weights may hold NaN or infinity")
    drawn.tokens.extend(tokens.tolist())
    drawn.logprobs.extend(min(value, 0.0) for value in values)
    drawn.kept.extend(kept)


def _less_log(score: float, total: float) -> float:
    """A score minus log(total), row by row: a vectorised logarithm rounds differently at the end of a vector."""
    return score - math.log(total) if total > 0 else math.nan  # NaN compares false too


def _scaled_scores(logits: Tensor, sampling: Sequence[SamplingParams]) -> Tensor:
    """(logits - their maximum) / temperature as float32 [n, V rounded up to whole blocks], padded with -inf."""
    n, vocabulary = logits.shape
    padded = -(-vocabulary // _BLOCK) * _BLOCK
    scores = torch.empty(n, padded, dtype=torch.float32, device=logits.device)
    scores[:, vocabulary:] = float("-inf")
    torch.sub(logits, logits.amax(-1, keepdim=True).float(), out=scores[:, :vocabulary])
    temperatures = [one.temperature or 1.0 for one in sampling]
    if any(value != 1.0 for value in temperatures):
        scores /= torch.tensor(temperatures, dtype=torch.float32, device=logits.device)[:, None]
    return scores


def _invert(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest token whose cumulative weight exceeds `uniform * total`, and the totals [n] (float32).

    Sums of blocks are accumulated first, then inside one block, so no cumulative sum is longer than V / 128 or 128.
    An entry of weight zero is never returned.
    """
    n = weights.shape[0]
    blocks = weights.view(n, -1, _BLOCK)
    mass = blocks.sum(-1).double()
    block, before = _locate(mass, uniforms * mass.sum(-1))
    chosen = blocks[torch.arange(n, device=weights.device), block].double()
    inside, _ = _locate(chosen, uniforms * mass.sum(-1) - before)
    return block * _BLOCK + inside, mass.sum(-1).float()


def _locate(mass: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Per row, the first index whose cumulative mass exceeds `target`, and the mass before it.

    `target` is moved into [0, total) first: rounding may have put it just outside.
    """
    edges = mass.cumsum(-1)
    total = edges[:, -1]
    inside = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total))).clamp_(min=0)
    index = torch.searchsorted(edges, inside[:, None], right=True)[:, 0].clamp_(max=mass.shape[1] - 1)
    rows = torch.arange(mass.shape[0], device=mass.device)
    return index, edges[rows, index] - mass[rows, index]


def _truncate(scores: Tensor, weights: Tensor, sampling: Sequence[SamplingParams]) -> list[IntArray | None]:
    """Zero the weights that top-k and top-p cut off; per row the ids that stay (None = all)."""
    kept: list[IntArray | None] = [None] * len(sampling)
    alike: dict[tuple[int, float], list[int]] = {}
    for row, one in enumerate(sampling):
        if one.is_truncated:
            alike.setdefault((one.top_k, one.top_p), []).append(row)
    for (top_k, top_p), rows in alike.items():
        floor = _floor(scores[rows], weights[rows], top_k, top_p)
        keep = (scores[rows] >= floor) & (scores[rows] > float("-inf"))
        weights[rows] = weights[rows].masked_fill_(~keep, 0.0)
        for row, mask in zip(rows, keep, strict=True):
            kept[row] = mask.nonzero()[:, 0].to(torch.int32).cpu().numpy()
    return kept


def _floor(scores: Tensor, weights: Tensor, top_k: int, top_p: float) -> Tensor:
    """Score of the last kept token [m, 1]."""
    width = scores.shape[1]
    floor = scores.new_full((scores.shape[0], 1), float("-inf"))
    if 0 < top_k < width:
        floor = scores.topk(top_k).values[:, -1:]
    if top_p >= 1.0:
        return floor
    needed = top_p * torch.where(scores >= floor, weights, 0.0).sum(-1, keepdim=True, dtype=torch.float64)
    candidates = min(_FIRST_K, width)
    while True:
        values = scores.topk(candidates).values
        reached = values.exp().double().cumsum(-1) >= needed
        if candidates == width or bool(reached[:, -1].all()):
            break
        candidates = min(candidates * _K_GROWTH, width)
    last = torch.where(reached.any(-1), reached.int().argmax(-1), candidates - 1)
    return torch.maximum(floor, values.gather(1, last[:, None]))
