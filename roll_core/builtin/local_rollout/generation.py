"""One request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_rollout.sampler import UniformStream
from roll_core.types import AnyArray, Completion, FinishReason, GenerateRequest, IntArray, PolicyRef, VersionRun

_NOTHING = torch.empty(0)


class StopText:
    """Looks for stop strings at the end of a response; loads the tokenizer of `folder` when first asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer: Any = None

    def is_hit(self, response: list[int], stops: tuple[str, ...]) -> bool:
        """Whether the newest token completed one of `stops`."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        longest = max(len(stop.encode()) for stop in stops)
        tail = response[-(longest + 8) :]  # a token holds at least one byte
        text = self._tokenizer.decode(tail, skip_special_tokens=False)
        return any(stop in text for stop in stops)


@dataclass(slots=True, eq=False)
class Generation:
    """State of one request. The engine appends; the backend reads when `finish_reason` is set."""

    request: GenerateRequest
    prompt: tuple[int, ...]
    """`token_ids` and `prefix_ids`: everything that is computed before the first new token."""
    limit: int
    """New tokens allowed, by `max_new_tokens` and by the model's length."""
    stream: UniformStream
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    kept: list[IntArray | None] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    is_dropped: bool = False
    """Set by the backend when the request was aborted or its task cancelled; the engine then gives the slot up."""
    prompt_version: int = -1
    """Policy version under which the prompt's keys and values were computed."""
    prompt_logits: Tensor = _NOTHING
    """[V], after the last token of the prompt: what others with the same prompt draw their first token from."""

    @property
    def length(self) -> int:
        """Tokens so far, prompt included."""
        return len(self.prompt) + len(self.tokens)

    @property
    def newest(self) -> int:
        """The token whose keys and values are not stored yet."""
        return self.tokens[-1] if self.tokens else self.prompt[-1]

    @property
    def uniform(self) -> float:
        """The random number of the next token, by its position in the response."""
        return self.stream.at(len(self.request.prefix_ids) + len(self.tokens))

    def append(self, token: int, logprob: float, kept: IntArray | None, version: int, stop_text: StopText) -> None:
        """Add a token and decide whether it was the last."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.kept.append(kept)
        self.versions.append(version)
        sampling = self.request.sampling
        if token in sampling.stop_token_ids or (sampling.stop and stop_text.is_hit(self._response(), sampling.stop)):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"

    def _response(self) -> list[int]:
        return [*self.request.prefix_ids, *self.tokens]

    def completion(self) -> Completion:
        """The result, once `finish_reason` is set."""
        if self.finish_reason is None:
            raise RuntimeError(f"request '{self.request.request_id}' has not finished")
        return Completion(
            request_id=self.request.request_id,
            token_ids=np.asarray(self.tokens, dtype=np.int32),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            versions=self._version_runs(),
            finish_reason=self.finish_reason,
            columns=self._columns(),
        )

    def _version_runs(self) -> tuple[VersionRun, ...]:
        model = self.request.policy.model if self.request.policy else "policy"
        runs: list[VersionRun] = []
        start = 0
        for version, same in groupby(self.versions):
            stop = start + len(list(same))
            runs.append(VersionRun(start, stop, PolicyRef(version, model)))
            start = stop
        return tuple(runs)

    def _columns(self) -> dict[str, AnyArray]:
        if not self.request.sampling.is_truncated:
            return {}
        empty = np.empty(0, dtype=np.int32)
        ids = [empty if kept is None else kept for kept in self.kept]
        counts = np.asarray([len(kept) for kept in ids], dtype=np.int32)
        return {"keep_counts": counts, "keep_ids": np.concatenate([empty, *ids])}
