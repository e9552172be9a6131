"""One sampled answer or interaction, and the group it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from roll_core.types.arrays import AnyArray, BoolArray, FloatArray, IntArray
from roll_core.types.generation import FinishReason, VersionRun
from roll_core.types.prompt import Prompt, Ticket
from roll_core.types.verdict import Verdict

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
