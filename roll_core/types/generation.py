"""What a rollout backend is asked for, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from roll_core.types.arrays import AnyArray, FloatArray, IntArray
from roll_core.types.prompt import MediaRef

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. `temperature == 0` is greedy; `top_k == 0` and `top_p == 1` switch truncation off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()

    @property
    def is_truncated(self) -> bool:
        """Whether top-p or top-k cuts the distribution."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0)

    def greedy(self) -> SamplingParams:
        """The same limits, decoded greedily."""
        return replace(self, temperature=0.0, top_p=1.0, top_k=0)


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """Which weights produced something."""

    version: int
    model: str = "policy"
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Tokens `start:stop` of a sequence were sampled by `policy`."""

    start: int
    stop: int
    policy: PolicyRef


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One continuation asked of a rollout backend.

    `prefix_ids` are response tokens made earlier (an interrupted request is resumed by sending them back): they follow
    `token_ids` and are not returned again; the random stream goes on at position `len(prefix_ids)`.
    """

    token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    request_id: str
    group_key: str = ""
    prefix_ids: tuple[int, ...] = ()
    policy: PolicyRef | None = None
    media: tuple[MediaRef, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What a backend returns for a request.

    `logprobs[t]` is the log-probability of `token_ids[t]` under the distribution it was sampled from (temperature,
    top-p and top-k included; for greedy decoding, under the full softmax). A stop token is part of `token_ids`.
    When sampling is truncated, `columns` carries the kept vocabulary of each token: `keep_counts` [n] int32 (0 = all)
    and `keep_ids` [sum(keep_counts)] int32, so that the trainer can renormalise over the same set.
    """

    request_id: str
    token_ids: IntArray
    logprobs: FloatArray
    versions: tuple[VersionRun, ...]
    finish_reason: FinishReason
    columns: Mapping[str, AnyArray] = field(default_factory=dict)
