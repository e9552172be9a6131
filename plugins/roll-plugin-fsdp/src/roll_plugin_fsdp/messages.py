"""What travels between the driver and the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roll_core.contracts import TensorInfo, Term
from roll_core.types import Batch

Sums = dict[str, tuple[float, float]]
"""Sums of (value, count) by metric."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A rank's part of one optimiser mini-batch: its segments, and the terms cut to their tokens."""

    batch: Batch
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What an update did on one rank: sums over its `own` tokens, and what is the same on every rank (`common`)."""

    own: Sums
    common: Sums


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """The answer of every rank to a request that could not be carried out, after all agreed to leave it.

    The ranks are in step and can go on. `error` is None on ranks that could have gone on.
    """

    error: BaseException | None
    trace: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Consecutive tensors of a weight source, as bytes since numpy has no bfloat16."""

    infos: Sequence[TensorInfo]
    arrays: Sequence[np.ndarray[Any, np.dtype[np.uint8]]]
