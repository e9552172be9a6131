"""The data every part of the engine passes around.

Legend of shape letters, used in every docstring:

* `B` rollouts, `S` segments, `G` samples of one prompt, `N` tokens of a batch laid end to end, `V` vocabulary.
* A mask's `True` means "counts".
* Position `t` of a column holds the value *for token t* (its log-prob is that of token `t` given the tokens before it).
  Only train strategies shift.

Rollout-side data is numpy; torch exists only in train workers and in `roll_core.numerics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
IndexArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
Message = Mapping[str, Any]
"""One chat message: `role`, `content`, and whatever a chat template understands."""


# --- what is judged ---------------------------------------------------------------------------------------------------


class Status(StrEnum):
    """Whose doing the outcome is. The policy's doing is always scored; the machinery's never is."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    """Wrong, partly right (0 <= score < 1), crashed, looped or over its limits."""
    INVALID = "invalid"
    """No usable answer was given: score 0."""
    UNDECIDED = "undecided"
    """The verifier could not tell, and not because of the answer's size. No score."""
    ERROR = "error"
    """Verifier, judge, sandbox, environment or reference is broken. No score."""
    ABSTAIN = "abstain"
    """The verifier does not apply to this prompt. No score."""

    @property
    def is_scored(self) -> bool:
        """Whether a verdict of this status carries a score."""
        return self in _SCORED


_SCORED = frozenset({Status.CORRECT, Status.INCORRECT, Status.INVALID})


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verifier's finding about one response.

    Build it through `correct`, `incorrect`, `invalid`, `undecided`, `error` and `abstain`; a score that is NaN,
    infinite, outside [0, 1] or at odds with the status raises `ValueError`.
    """

    status: Status
    score: float | None = None
    answer: str | None = None
    """The answer that was extracted from the response, if any."""
    detail: str = ""
    """A short machine-readable word about how the verdict came about ("exact", "too_costly", "timeout")."""
    reason: str = ""
    """A sentence for people."""
    seconds: float = 0.0
    verifier: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if not self.status.is_scored:
            if self.score is not None:
                raise ValueError(f"a verdict with status '{self.status}' carries no score, got {self.score!r}")
            return
        if self.score is None or not math.isfinite(self.score) or not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a verdict with status '{self.status}' needs a score in [0, 1], got {self.score!r}")
        if self.status is Status.INVALID and self.score != 0.0:
            raise ValueError(f"an invalid answer scores 0, got {self.score!r}")
        if self.status is Status.INCORRECT and self.score >= 1.0:
            raise ValueError("an incorrect answer scores below 1")

    @classmethod
    def correct(cls, answer: str | None = None, *, score: float = 1.0, detail: str = "", reason: str = "") -> Self:
        """The answer is right."""
        return cls(Status.CORRECT, score, answer, detail, reason)

    @classmethod
    def incorrect(cls, answer: str | None = None, *, score: float = 0.0, detail: str = "", reason: str = "") -> Self:
        """The answer is wrong, or partly right with `score` below 1."""
        return cls(Status.INCORRECT, score, answer, detail, reason)

    @classmethod
    def invalid(cls, reason: str = "", *, answer: str | None = None, detail: str = "") -> Self:
        """No usable answer."""
        return cls(Status.INVALID, 0.0, answer, detail, reason)

    @classmethod
    def undecided(cls, reason: str, *, answer: str | None = None, detail: str = "") -> Self:
        """Could not tell; leaves the statistics."""
        return cls(Status.UNDECIDED, None, answer, detail, reason)

    @classmethod
    def error(cls, reason: str, *, detail: str = "") -> Self:
        """The machinery failed; leaves the statistics."""
        return cls(Status.ERROR, None, None, detail, reason)

    @classmethod
    def abstain(cls, reason: str = "", *, detail: str = "") -> Self:
        """Not applicable; leaves the statistics."""
        return cls(Status.ABSTAIN, None, None, detail, reason)

    def stamped(self, *, verifier: str, version: str, seconds: float) -> Verdict:
        """Return a copy that names its verifier, the verifier's version, and the time taken in seconds."""
        return replace(self, verifier=verifier, version=version, seconds=seconds)


@dataclass(frozen=True, slots=True)
class MediaRef:
    """A picture, sound or film by content hash; the bytes live in a store."""

    sha256: str
    mime: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task, immutable. Either `messages` (chat) or `text` (raw continuation) or `token_ids` says what is asked."""

    id: str
    domain: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    reference: Any = None
    info: Mapping[str, Any] = field(default_factory=dict)
    media: tuple[MediaRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticket:
    """One draw of one prompt. Tickets are numbered in the order of the draw, over the whole run."""

    id: int
    domain: str
    prompt_id: str
    position: int = 0
    """Position in the domain's shuffled stream (counts on over epochs)."""


# --- generation -------------------------------------------------------------------------------------------------------

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


# --- rollouts ---------------------------------------------------------------------------------------------------------

Level = Literal["token", "segment", "rollout", "group", "ragged"]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """Declares a column: its dtype, what one row of it belongs to, and the shape behind the row axis."""

    name: str
    dtype: str = "float32"
    level: Level = "token"
    trailing: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Segment:
    """One append-only token sequence (prompt included).

    token_ids [n] int32; response_mask [n] True where the policy sampled the token; loss_mask [n] True where the token
    enters the loss; rollout_logprobs [n], 0 where response_mask is False.
    """

    token_ids: IntArray
    response_mask: BoolArray
    loss_mask: BoolArray
    rollout_logprobs: FloatArray
    versions: tuple[VersionRun, ...] = ()
    columns: dict[str, AnyArray] = field(default_factory=dict)
    parent: tuple[int, int] | None = None
    """(index of the segment this one forked from, number of shared tokens)."""

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first sampled one."""
        return int(np.argmax(self.response_mask)) if self.response_mask.any() else len(self.token_ids)


@dataclass(frozen=True, slots=True)
class RewardRecord:
    """One component's contribution: `weight * value` is added to the reward of the rollout, turn or token span."""

    component: str
    value: float
    weight: float = 1.0
    scope: Literal["rollout", "turn", "token"] = "rollout"
    span: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Rollout:
    """One sampled answer or interaction, over one or more segments."""

    ticket: Ticket
    index: int
    """Which of the group's samples this is; -1 for a greedy baseline."""
    prompt: Prompt
    segments: list[Segment]
    response: str
    finish_reason: FinishReason
    attempt: int = 0
    turns: int = 1
    verdict: Verdict | None = None
    rewards: list[RewardRecord] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The raw task metric, before shaping; None when the machinery failed."""
        return self.verdict.score if self.verdict is not None else None

    @property
    def is_scored(self) -> bool:
        """Whether this rollout may enter its group's statistics."""
        return self.score is not None

    @property
    def reward(self) -> float:
        """Sum of the weighted reward records of the whole rollout and its turns."""
        return float(sum(r.weight * r.value for r in self.rewards))

    @property
    def response_length(self) -> int:
        """Number of sampled tokens over all segments."""
        return int(sum(int(s.response_mask.sum()) for s in self.segments))

    @property
    def is_truncated(self) -> bool:
        """Whether the answer hit a length limit."""
        return self.finish_reason == "length"


@dataclass(slots=True, eq=False)
class RolloutGroup:
    """All samples of one ticket, in order of their index, and the greedy baseline where one was asked for."""

    ticket: Ticket
    prompt: Prompt
    rollouts: list[Rollout]
    greedy: Rollout | None = None

    @property
    def scored(self) -> list[Rollout]:
        """The rollouts that carry a score: the only ones statistics and losses see."""
        return [r for r in self.rollouts if r.is_scored]

    @property
    def scores(self) -> FloatArray:
        """Raw task metric of the scored rollouts."""
        return np.array([r.score for r in self.scored], dtype=np.float32)


# --- the batch --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Batch:
    """Segments laid end to end, with everything credit and a strategy read.

    Rows are sorted by (ticket, sample, segment). Shapes: token_ids, response_mask, loss_mask, rollout_logprobs [N];
    offsets [S + 1] (segment s is `offsets[s]:offsets[s + 1]`); segment_rollout [S]; rollout_group, rollout_domain,
    rewards, scores, rollout_ids [B]. Further columns live in `columns` and are described by `specs`.
    """

    token_ids: IntArray
    offsets: IndexArray
    response_mask: BoolArray
    loss_mask: BoolArray
    rollout_logprobs: FloatArray
    segment_rollout: IndexArray
    rollout_group: IndexArray
    rollout_domain: IndexArray
    domains: tuple[str, ...]
    rewards: FloatArray
    scores: FloatArray
    columns: dict[str, AnyArray] = field(default_factory=dict)
    specs: dict[str, ColumnSpec] = field(default_factory=dict)
    sampling: dict[str, SamplingParams] = field(default_factory=dict)
    """Sampling parameters by domain: the trainer computes log-probs of the same distribution."""

    @property
    def n_tokens(self) -> int:
        """N: tokens of all segments, prompts included."""
        return int(self.offsets[-1])

    @property
    def n_segments(self) -> int:
        """S."""
        return len(self.offsets) - 1

    @property
    def n_rollouts(self) -> int:
        """B."""
        return len(self.rollout_group)

    @property
    def lengths(self) -> IndexArray:
        """Tokens of each segment [S]."""
        return np.diff(self.offsets)

    @property
    def token_segment(self) -> IndexArray:
        """Segment of each token [N]."""
        return np.repeat(np.arange(self.n_segments, dtype=np.int64), self.lengths)

    @property
    def token_rollout(self) -> IndexArray:
        """Rollout of each token [N]."""
        return self.segment_rollout[self.token_segment]

    @property
    def token_domain(self) -> IndexArray:
        """Domain index of each token [N]."""
        return self.rollout_domain[self.token_rollout]

    def add(self, name: str, values: AnyArray, spec: ColumnSpec | None = None) -> None:
        """Attach a token-level column (or whatever `spec` declares).

        Raises:
            ValueError: the column's first axis does not fit its level.
        """
        spec = spec or ColumnSpec(name, str(values.dtype))
        rows = {"token": self.n_tokens, "segment": self.n_segments, "rollout": self.n_rollouts}.get(spec.level)
        if rows is not None and len(values) != rows:
            raise ValueError(f"column '{name}' has {len(values)} rows, its level '{spec.level}' needs {rows}")
        self.columns[name] = values
        self.specs[name] = spec


@dataclass(frozen=True, slots=True, eq=False)
class AdvantageInputs:
    """What an advantage estimator reads (numpy, on the driver).

    rewards [B] terminal reward of each rollout; token_rewards [N] dense rewards (per-turn, or -kl_coef * KL), zeros
    when there are none; groups [B] group index; segment_rollout [S]; offsets [S + 1]; response_mask [N].
    Present only when the estimator's requirements ask: values [N], greedy_rewards [B].
    """

    rewards: FloatArray
    groups: IndexArray
    offsets: IndexArray
    segment_rollout: IndexArray
    response_mask: BoolArray
    token_rewards: FloatArray
    values: FloatArray | None = None
    greedy_rewards: FloatArray | None = None
    columns: Mapping[str, AnyArray] = field(default_factory=dict)
    """Every other column the estimator's requirements name, cut to these rollouts."""

    @property
    def token_rollout(self) -> IndexArray:
        """Rollout of each token [N]."""
        lengths = np.diff(self.offsets)
        return self.segment_rollout[np.repeat(np.arange(len(lengths)), lengths)]

    @property
    def lengths(self) -> IndexArray:
        """Sampled tokens of each rollout [B]."""
        return np.bincount(self.token_rollout[self.response_mask], minlength=len(self.rewards)).astype(np.int64)

    def totals(self) -> FloatArray:
        """Terminal reward plus the sum of dense rewards over sampled tokens, per rollout [B]."""
        dense = np.bincount(
            self.token_rollout, weights=self.token_rewards * self.response_mask, minlength=len(self.rewards)
        )
        return (self.rewards + dense).astype(np.float32)

    def broadcast(self, per_rollout: AnyArray) -> FloatArray:
        """Spread a value per rollout [B] over its sampled tokens [N]; 0 elsewhere."""
        return np.where(self.response_mask, per_rollout[self.token_rollout], 0.0).astype(np.float32)

    def group_sum(self, per_rollout: AnyArray) -> AnyArray:
        """Sum a value per rollout over its group, given back per rollout [B]."""
        return np.bincount(self.groups, weights=per_rollout)[self.groups]

    def group_size(self) -> AnyArray:
        """Number of rollouts in each rollout's group [B], as float64."""
        return self.group_sum(np.ones(len(self.groups)))

    def group_mean(self, per_rollout: AnyArray) -> AnyArray:
        """Mean over the group, given back per rollout [B], as float64."""
        return self.group_sum(per_rollout) / self.group_size()


@dataclass(frozen=True, slots=True, eq=False)
class Advantages:
    """An estimator's result: advantages [N] (0 off the mask) and, where a critic is trained, its target returns [N]."""

    advantages: FloatArray
    returns: FloatArray | None = None


def batch_of(groups: Sequence[RolloutGroup], domains: Sequence[str]) -> Batch:
    """Lay the scored rollouts of `groups` end to end, sorted by (ticket, sample, segment).

    Args:
        groups: admitted groups.
        domains: names of the run's domains; `rollout_domain` indexes them.
    """
    ordered = sorted(groups, key=lambda g: g.ticket.id)
    rows = [(k, r) for k, g in enumerate(ordered) for r in sorted(g.scored, key=lambda r: r.index)]
    segments = [(b, s) for b, (_, r) in enumerate(rows) for s in r.segments]
    lengths = [len(s.token_ids) for _, s in segments]
    index = {name: i for i, name in enumerate(domains)}

    def concat(arrays: list[AnyArray], dtype: Any) -> AnyArray:
        return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)

    batch = Batch(
        token_ids=concat([s.token_ids for _, s in segments], np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        response_mask=concat([s.response_mask for _, s in segments], np.bool_),
        loss_mask=concat([s.loss_mask for _, s in segments], np.bool_),
        rollout_logprobs=concat([s.rollout_logprobs for _, s in segments], np.float32),
        segment_rollout=np.array([b for b, _ in segments], dtype=np.int64),
        rollout_group=np.array([k for k, _ in rows], dtype=np.int64),
        rollout_domain=np.array([index[r.ticket.domain] for _, r in rows], dtype=np.int64),
        domains=tuple(domains),
        rewards=np.array([r.reward for _, r in rows], dtype=np.float32),
        scores=np.array([r.score for _, r in rows], dtype=np.float32),
    )
    if any("keep_counts" in s.columns for _, s in segments):
        batch.add("keep_counts", concat([_keep_counts(s) for _, s in segments], np.int32))
        kept = [s.columns["keep_ids"] for _, s in segments if "keep_ids" in s.columns]
        batch.add("keep_ids", concat(kept, np.int32), ColumnSpec("keep_ids", "int32", "ragged"))
    for name in sorted({c for _, s in segments for c in s.columns} - {"keep_counts", "keep_ids"}):
        batch.add(name, np.concatenate([s.columns[name] for _, s in segments]))
    return batch


def _keep_counts(segment: Segment) -> AnyArray:
    return segment.columns.get("keep_counts", np.zeros(len(segment.token_ids), np.int32))
