"""Continuous batching without any concurrency: one step after another over the live slots.

Live requests occupy slots 0..n-1. A step gives up finished slots (the last ones move into the gaps), admits new
requests, computes their prompts (equal prompts once), and decodes one token for every live request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from roll_core.builtin.local_rollout.cache import DecodeStep, PromptBatch, SlotStore
from roll_core.builtin.local_rollout.generation import Generation, StopText
from roll_core.builtin.local_rollout.linear import round_rows
from roll_core.builtin.local_rollout.runner import Runner
from roll_core.builtin.local_rollout.sampler import sample

_PREFILL_TOKENS = 4096
"""Prompt tokens computed together (a longer prompt goes alone)."""
_ROOM_AHEAD = 128
"""Response tokens that slots make room for before they are needed."""


class DecodeEngine:
    """Owns the slots. Calls must not overlap.

    Args:
        runner: the model.
        store: the slots' keys and values.
        device: where the model is.
        stop_text: finds stop strings.
    """

    def __init__(self, runner: Runner, store: SlotStore, device: torch.device, stop_text: StopText) -> None:
        self.version = 0
        self.steps = 0
        self._runner, self._store, self._device, self._stop_text = runner, store, device, stop_text
        self._live: list[Generation] = []

    @property
    def free(self) -> int:
        """Slots that can be given out at the next step."""
        return self._store.slots - len(self._live)

    def step(self, fresh: Sequence[Generation]) -> list[Generation]:
        """Admit `fresh` (at most `free`), decode one token for every live request; return those that ended.

        A request that was dropped ends with reason "abort" and the tokens it has.
        """
        with torch.inference_mode():
            ended = self._give_up_slots()
            self._admit(fresh)
            ended += self._give_up_slots()
            if self._live:
                self._decode()
                ended += self._give_up_slots()
        self.steps += 1
        return ended

    def reset(self) -> None:
        """Forget every live request."""
        self._live.clear()

    def _admit(self, fresh: Sequence[Generation]) -> None:
        """Give slots to `fresh`. A prompt that a live request shares is copied from it, with the logits behind it."""
        if not fresh:
            return
        self._store.reserve(max(len(one.prompt) + min(one.limit, _ROOM_AHEAD) for one in fresh))
        living = {one.prompt: slot for slot, one in enumerate(self._live) if one.prompt_version == self.version}
        groups: dict[tuple[int, ...], list[int]] = {}
        logits: dict[tuple[int, ...], Tensor] = {}
        first = len(self._live)
        for one in fresh:
            one.prompt_version = self.version
            slot = len(self._live)
            self._live.append(one)
            if one.prompt in living:
                logits[one.prompt] = self._live[living[one.prompt]].prompt_logits
                self._store.copy([living[one.prompt]], [slot], len(one.prompt))
            else:
                groups.setdefault(one.prompt, []).append(slot)
        for batch in _prefill_batches(groups):
            made = self._runner.prefill(batch, self._store)
            logits |= {prompt: row.clone() for prompt, row in zip(batch.prompts, made, strict=True)}
        for one in fresh:
            one.prompt_logits = logits[one.prompt]
        self._advance(self._live[first:], torch.stack([logits[one.prompt] for one in fresh]))

    def _decode(self) -> None:
        live = self._live
        self._store.reserve(max(one.length for one in live))
        tokens, positions = [one.newest for one in live], [one.length - 1 for one in live]
        if self._device.type == "cpu":  # free slots are computed too, for nothing
            idle = min(round_rows(len(live)), self._store.slots) - len(live)
            tokens, positions = tokens + [0] * idle, positions + [0] * idle
        step = DecodeStep.build(tokens, positions, self._store.length, self._device)
        self._advance(live, self._runner.decode(step, self._store)[: len(live)])

    def _advance(self, rows: Sequence[Generation], logits: Tensor) -> None:
        draw = sample(logits, [one.request.sampling for one in rows], [one.uniform for one in rows])
        for one, token, logprob, kept in zip(rows, draw.tokens, draw.logprobs, draw.kept, strict=True):
            one.append(token, logprob, kept, self.version, self._stop_text)

    def _give_up_slots(self) -> list[Generation]:
        """Take ended requests out; live ones from the end move into their slots."""
        for one in self._live:
            if one.is_dropped and one.finish_reason is None:
                one.finish_reason = "abort"
        ended = [one for one in self._live if one.finish_reason is not None]
        if not ended:
            return []
        staying = len(self._live) - len(ended)
        gaps = [slot for slot in range(staying) if self._live[slot].finish_reason is not None]
        movers = [slot for slot in range(staying, len(self._live)) if self._live[slot].finish_reason is None]
        self._store.copy(movers, gaps, max((self._live[slot].length for slot in movers), default=0))
        for gap, mover in zip(gaps, movers, strict=True):
            self._live[gap] = self._live[mover]
        del self._live[staying:]
        return ended


def _prefill_batches(groups: dict[tuple[int, ...], list[int]]) -> Iterator[PromptBatch]:
    """Cut prompts, shortest first, into batches of similar length within the token budget, padding counted."""
    chosen: list[tuple[int, ...]] = []
    for prompt in sorted(groups, key=len):
        if chosen and (len(chosen) + 1) * len(prompt) > _PREFILL_TOKENS:
            yield PromptBatch(tuple(chosen), tuple(tuple(groups[p]) for p in chosen))
            chosen = []
        chosen.append(prompt)
    if chosen:
        yield PromptBatch(tuple(chosen), tuple(tuple(groups[p]) for p in chosen))
