"""Forward passes that ranks make together: equally many on each, whatever a rank has to compute, or fails to.

Parameters are gathered inside every pass, so a rank that leaves one out would keep the others waiting. A rank with
nothing left to do, or with an error, makes idle passes; the error is agreed on when all have come through.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor

from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.logprob import Targets
from roll_core.builtin.local_train.model import Backbone
from roll_core.builtin.local_train.targets import targets_of
from roll_core.errors import BackendError
from roll_core.types import Batch, IndexArray
from roll_plugin_fsdp.messages import Refused
from roll_plugin_fsdp.models import idle_batch
from roll_plugin_fsdp.processes import Ranks

T = TypeVar("T")
Plan = list[IndexArray | None]
"""Segments of each micro-batch; None where the rank only keeps the others company."""


@dataclass(frozen=True, slots=True, eq=False)
class Micro:
    """A micro-batch ready to be computed."""

    layout: Layout
    targets: Targets
    is_idle: bool


class Pass:
    """The passes of one request, and the first error of this rank.

    Args:
        ranks: who makes them.
        micro_tokens: most tokens of a micro-batch.
    """

    def __init__(self, ranks: Ranks, micro_tokens: int) -> None:
        self._ranks = ranks
        self._micro_tokens = micro_tokens
        self._error: Exception | None = None
        self._trace = ""

    def trap(self, do: Callable[[], T]) -> T | None:
        """What `do` returns; None when it, or something before it, has failed."""
        if self._error is not None:
            return None
        try:
            return do()
        except Exception as error:  # noqa: BLE001  # reported to the driver once the ranks are in step
            self._error, self._trace = _portable(error), traceback.format_exc()
            return None

    def has_failed(self, *, is_patient: bool = False) -> bool:
        """Whether some rank has failed; every rank must ask. `is_patient` where ranks may be far apart in time."""
        return bool(self._ranks.highest([int(self._error is not None)], is_patient=is_patient)[0])

    def refusal(self) -> Refused:
        """This rank's answer when some rank has failed."""
        return Refused(self._error, self._trace)

    def agreed(self, do: Callable[[], T]) -> T | Refused:
        """What `do` returns, unless that or something before it has failed on some rank; every rank must ask."""
        result = self.trap(do)
        if self.has_failed(is_patient=True):
            return self.refusal()
        return result  # type: ignore[return-value]  # nothing failed, so it is what `do` returned

    def plans(self, parts: Sequence[tuple[Backbone, Batch]]) -> list[Plan]:
        """Micro-batches of this rank's segments, as many as the rank with the most has; every rank must ask."""
        own = [self.trap(lambda part=part: self._plan(*part)) or [] for part in parts]  # type: ignore[misc]  # lambda
        counts = self._ranks.highest([len(plan) for plan in own])
        return [[*plan, *[None] * (count - len(plan))] for plan, count in zip(own, counts, strict=True)]

    def prepare(self, backbone: Backbone, batch: Batch, members: IndexArray | None, *, sampled: bool = True) -> Micro:
        """Lay a micro-batch out; an idle one where there is none, or something has failed."""
        device = backbone.device

        def make() -> Micro | None:
            if members is None:
                return None
            layout = backbone.layout(batch, members)
            return Micro(layout, targets_of(batch, layout, device, sampled=sampled), is_idle=False)

        real = self.trap(make)
        if real is not None:
            return real
        idle = idle_batch()
        layout = backbone.layout(idle, np.zeros(1, np.int64))
        return Micro(layout, targets_of(idle, layout, device), is_idle=True)

    def over(self, backbone: Backbone, batch: Batch, *, sampled: bool = True) -> Iterator[Micro]:
        """All micro-batches of `batch`; every rank must walk through its own to the end."""
        for members in self.plans([(backbone, batch)])[0]:
            yield self.prepare(backbone, batch, members, sampled=sampled)

    def _plan(self, backbone: Backbone, batch: Batch) -> list[IndexArray]:
        if not batch.n_segments:
            return []
        return backbone.plan(batch, np.arange(batch.n_segments, dtype=np.int64), self._micro_tokens)


def _portable(error: Exception) -> Exception:
    """The error, or one with its text where it could not travel to the driver."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # made in this line
    except Exception:  # noqa: BLE001  # an error's own pickling may raise anything
        return BackendError(f"{type(error).__name__}: {error}")
    return error


def anchor(outputs: Tensor) -> Tensor:
    """Zero, with a gradient of zero for `outputs`, so that every rank makes the backward pass."""
    return outputs.nan_to_num().sum() * 0.0
