"""Keys and values of every live sequence, one slot each, and the two faces a transformers model sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache

_ROUND = 64
"""Lengths of slots are multiples of it. It is the smallest window too: for a few keys torch has another kernel, whose
sums differ in the last bit."""
_WINDOW = 16
"""Windows are multiples of it, so that keys which do not count only add zeros at the end of whole vectors."""


def rounded(length: int, step: int) -> int:
    """`length` rounded up to a multiple of `step`."""
    return -(-length // step) * step


class SlotStore:
    """Per layer, keys and values [slots, kv_heads, length, head_dim], allocated when a layer first writes.

    Live sequences occupy slots 0..n-1, so that a decode step reads a view. `length` grows on demand.

    Args:
        slots: sequences held at once.
        length: first length of a slot in tokens; 0 leaves it to the first `reserve`.
    """

    def __init__(self, slots: int, length: int = 0) -> None:
        self.slots = slots
        self.length = rounded(length, _ROUND)
        self._layers: list[tuple[Tensor, Tensor] | None] = []

    def reserve(self, length: int) -> None:
        """Make every slot hold at least `length` tokens; what is stored stays."""
        if length <= self.length:
            return
        self.length = rounded(max(length, self.length + self.length // 2), _ROUND)
        self._layers = [None if pair is None else (self._grown(pair[0]), self._grown(pair[1])) for pair in self._layers]

    def _grown(self, old: Tensor) -> Tensor:
        new = old.new_zeros(old.shape[0], old.shape[1], self.length, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new

    def layer(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The whole key and value tensors of a layer, made like `keys` and `values` [.., kv_heads, .., head_dim]."""
        while len(self._layers) <= index:
            self._layers.append(None)
        pair = self._layers[index]
        if pair is None:
            pair = (self._empty(keys), self._empty(values))
            self._layers[index] = pair
        return pair

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_zeros(self.slots, like.shape[1], self.length, like.shape[3])

    def fill(self, index: int, keys: Tensor, values: Tensor, slots: Sequence[int]) -> None:
        """Write one prompt's `keys` and `values` [1, kv_heads, T, head_dim] of a layer to the start of `slots`."""
        for whole, part in zip(self.layer(index, keys, values), (keys, values), strict=True):
            for slot in slots:
                whole[slot, :, : part.shape[2]] = part[0]

    def put(self, index: int, keys: Tensor, values: Tensor, step: DecodeStep) -> tuple[Tensor, Tensor]:
        """Write one token per live slot, `keys` and `values` [n, kv_heads, 1, head_dim]; return the live windows.

        Returns:
            Views [n, kv_heads, window, head_dim].
        """
        whole_keys, whole_values = self.layer(index, keys, values)
        whole_keys[step.rows, :, step.positions] = keys[:, :, 0]
        whole_values[step.rows, :, step.positions] = values[:, :, 0]
        n = keys.shape[0]
        return whole_keys[:n, :, : step.window], whole_values[:n, :, : step.window]

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens from slot `sources[i]` to slot `targets[i]` (no slot is in both)."""
        if not sources or not length:
            return
        for pair in self._layers:
            for whole in pair or ():
                whole[list(targets), :, :length] = whole[list(sources), :, :length]


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """What one decode step over `n` live slots shares among its layers."""

    tokens: Tensor
    """[n] int64, the newest token of each slot."""
    positions: Tensor
    """[n] int64, where that token goes."""
    rows: Tensor
    """[n] int64, 0..n-1."""
    mask: Tensor
    """[n, window] float32: 0 where a key counts, the lowest float elsewhere."""
    window: int
    """Keys read from each slot: the longest live length, rounded up."""

    @classmethod
    def build(cls, tokens: Sequence[int], positions: Sequence[int], capacity: int, device: torch.device) -> DecodeStep:
        """Lay out a step; `capacity` bounds the window."""
        window = min(max(rounded(max(positions) + 1, _WINDOW), _ROUND), capacity)
        at = torch.tensor(positions, dtype=torch.int64, device=device)
        hidden = torch.arange(window, device=device)[None] > at[:, None]
        mask = torch.zeros(len(tokens), window, device=device).masked_fill_(hidden, torch.finfo(torch.float32).min)
        rows = torch.arange(len(tokens), device=device)
        return cls(torch.tensor(tokens, dtype=torch.int64, device=device), at, rows, mask, window)


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Different prompts computed together, and the slots that each goes to."""

    prompts: tuple[tuple[int, ...], ...]
    slots: tuple[tuple[int, ...], ...]


class DecodeCache(Cache):  # type: ignore[misc]  # transformers is not typed
    """Lets a transformers model take one decode step over the live slots."""

    def __init__(self, store: SlotStore, step: DecodeStep) -> None:
        super().__init__(layers=[])
        self._store, self._step = store, step

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Write the new token of each row at its own position; return the live windows."""
        return self._store.put(layer_idx, key_states, value_states, self._step)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # the interface's signature
        """Length before this step, of the longest row."""
        return self._step.window - 1


class PrefillCache(Cache):  # type: ignore[misc]  # transformers is not typed
    """Lets a transformers model compute left-padded prompts [p, T] and keeps their keys and values in the slots."""

    def __init__(self, store: SlotStore, batch: PromptBatch) -> None:
        super().__init__(layers=[])
        self._store, self._batch = store, batch

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Store each prompt's part without its padding; return the states as they came."""
        for row, (prompt, slots) in enumerate(zip(self._batch.prompts, self._batch.slots, strict=True)):
            keys, values = key_states[row : row + 1, :, -len(prompt) :], value_states[row : row + 1, :, -len(prompt) :]
            self._store.fill(layer_idx, keys, values, slots)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:  # the interface's signature
        """Nothing is stored before the prompt."""
        return 0
