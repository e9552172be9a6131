"""The data every part of the engine passes around.

Legend of shape letters, used in every docstring:

* `B` rollouts, `S` segments, `G` samples of one prompt, `N` tokens of a batch laid end to end, `V` vocabulary.
* A mask's `True` means "counts".
* Position `t` of a column holds the value *for token t* (its log-prob is that of token `t` given the tokens before it).
  Only train strategies shift.

Rollout-side data is numpy; torch exists only in train workers and in `roll_core.numerics`.
"""

from __future__ import annotations

from roll_core.types.arrays import AnyArray, BoolArray, FloatArray, IndexArray, IntArray
from roll_core.types.batch import AdvantageInputs, Advantages, Batch, batch_of
from roll_core.types.generation import Completion, FinishReason, GenerateRequest, PolicyRef, SamplingParams, VersionRun
from roll_core.types.prompt import MediaRef, Message, Prompt, Ticket
from roll_core.types.response import without_thinking
from roll_core.types.rollout import ColumnSpec, Level, RewardRecord, Rollout, RolloutGroup, Segment
from roll_core.types.verdict import Status, Verdict

__all__ = [
    "AdvantageInputs",
    "Advantages",
    "AnyArray",
    "Batch",
    "BoolArray",
    "ColumnSpec",
    "Completion",
    "FinishReason",
    "FloatArray",
    "GenerateRequest",
    "IndexArray",
    "IntArray",
    "Level",
    "MediaRef",
    "Message",
    "PolicyRef",
    "Prompt",
    "RewardRecord",
    "Rollout",
    "RolloutGroup",
    "SamplingParams",
    "Segment",
    "Status",
    "Ticket",
    "Verdict",
    "VersionRun",
    "batch_of",
    "without_thinking",
]
