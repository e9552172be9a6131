"""How the engine computes: a prefill of prompts and a decode step of all live slots, on any architecture.

`GenericRunner` calls the transformers model as it is; `lean.LeanRunner` does the same sums in fewer operations.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from roll_core.builtin.local_rollout.cache import DecodeCache, DecodeStep, PrefillCache, PromptBatch, SlotStore


class Runner(Protocol):
    """A model that computes into a `SlotStore`."""

    def prefill(self, batch: PromptBatch, store: SlotStore) -> Tensor:
        """Fill the slots of each prompt; return the logits after its last token, [prompts, V]."""
        ...

    def decode(self, step: DecodeStep, store: SlotStore) -> Tensor:
        """Take one step over the live slots; return their logits, [n, V]."""
        ...

    def refresh(self) -> None:
        """Take over weights that were changed in place."""
        ...


class GenericRunner:
    """Runs a transformers decoder through its own forward, with explicit positions and a 4-D additive mask."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._dtype: torch.dtype = model.dtype

    def prefill(self, batch: PromptBatch, store: SlotStore) -> Tensor:
        """See `Runner`. Prompts are padded on the left, so that every last token is in the last column."""
        width = max(map(len, batch.prompts))
        padding = torch.tensor([width - len(prompt) for prompt in batch.prompts], device=self._device)
        ids = torch.zeros(len(batch.prompts), width, dtype=torch.int64, device=self._device)
        for row, prompt in enumerate(batch.prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt, device=self._device)
        columns = torch.arange(width, device=self._device)
        causal = columns[None, :, None] >= columns[None, None, :]
        real = columns[None, None, :] >= padding[:, None, None]
        itself = torch.eye(width, dtype=torch.bool, device=self._device)  # keeps rows of padding finite
        positions = (columns[None] - padding[:, None]).clamp_(min=0)
        return self._forward(ids, positions, (causal & real) | itself, PrefillCache(store, batch))

    def decode(self, step: DecodeStep, store: SlotStore) -> Tensor:
        """See `Runner`."""
        cache = DecodeCache(store, step)
        return self._forward(step.tokens[:, None], step.positions[:, None], step.mask[:, None] == 0, cache)

    def refresh(self) -> None:
        """Nothing to do: the model's own weights are read."""

    def _forward(self, ids: Tensor, positions: Tensor, counts: Tensor, cache: Any) -> Tensor:
        lowest = torch.finfo(self._dtype).min
        mask = torch.zeros(counts.shape, dtype=self._dtype, device=self._device).masked_fill_(~counts, lowest)
        output = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits
