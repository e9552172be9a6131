"""One answer to one prompt: a coroutine over one `generate` call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from roll_core.types import AnyArray, Completion, GenerateRequest, Prompt, Rollout, SamplingParams, Segment, Ticket

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens left out."""


class Generator(Protocol):
    """A rollout backend, or the gate before one."""

    async def generate(self, request: GenerateRequest) -> Completion:
        """One continuation."""
        ...


async def single_turn(
    backend: Generator,
    decode: Decode,
    *,
    ticket: Ticket,
    prompt: Prompt,
    index: int,
    sampling: SamplingParams,
    seed: int,
    attempt: int = 0,
) -> Rollout:
    """Sample one answer.

    Args:
        backend: generates the tokens.
        decode: turns response tokens into text.
        ticket: the draw this belongs to.
        prompt: what is asked; its `token_ids` must be set.
        index: which of the group's samples this is; -1 for a greedy baseline.
        sampling: how tokens are drawn.
        seed: key of this sample's random stream.
        attempt: counts repetitions of the same sample after a failure.
    """
    if prompt.token_ids is None:
        raise ValueError(f"prompt '{prompt.id}' of domain '{prompt.domain}' has no token ids")
    started = time.perf_counter()
    request = GenerateRequest(
        token_ids=prompt.token_ids,
        sampling=sampling,
        seed=seed,
        request_id=request_id(ticket, index, attempt),
        group_key=f"{ticket.domain}:{ticket.id}",
        media=prompt.media,
    )
    completion = await backend.generate(request)
    return Rollout(
        ticket=ticket,
        index=index,
        prompt=prompt,
        segments=[segment_of(prompt.token_ids, completion)],
        response=decode(completion.token_ids.tolist()),
        finish_reason=completion.finish_reason,
        attempt=attempt,
        timing={"generate_s": time.perf_counter() - started},
    )


def request_id(ticket: Ticket, index: int, attempt: int) -> str:
    """Name of the request that samples one rollout; stale attempts differ."""
    return f"{ticket.domain}:{ticket.id}/{index}/{attempt}"


def segment_of(prompt_ids: Sequence[int], completion: Completion) -> Segment:
    """Join a prompt and its completion into one segment; completion columns are shifted behind the prompt.

    `keep_ids` (ragged) goes over as it is; every other column gets zeros for the prompt's positions.
    """
    n_prompt, n_response = len(prompt_ids), len(completion.token_ids)
    mask = np.concatenate([np.zeros(n_prompt, np.bool_), np.ones(n_response, np.bool_)])

    def behind_prompt(values: AnyArray) -> AnyArray:
        return np.concatenate([np.zeros((n_prompt, *values.shape[1:]), values.dtype), values])

    return Segment(
        token_ids=np.concatenate([np.asarray(prompt_ids, np.int32), completion.token_ids]).astype(np.int32),
        response_mask=mask,
        loss_mask=mask.copy(),
        rollout_logprobs=behind_prompt(completion.logprobs.astype(np.float32)),
        versions=tuple(replace(v, start=v.start + n_prompt, stop=v.stop + n_prompt) for v in completion.versions),
        columns={
            name: values if name == "keep_ids" else behind_prompt(values) for name, values in completion.columns.items()
        },
    )
