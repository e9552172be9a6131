"""Optimiser steps on one rank: micro-batches forward and backward, then a step together with the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from roll_core.builtin.local_train.logprob import TokenScores
from roll_core.builtin.local_train.model import Backbone
from roll_core.builtin.local_train.objective import Meter, evaluate, loss_inputs, needs_of
from roll_core.types import IndexArray
from roll_plugin_fsdp.messages import Report, Work
from roll_plugin_fsdp.models import Scorer, Valuer
from roll_plugin_fsdp.optimizer import ShardedOptimizer
from roll_plugin_fsdp.passes import Micro, Pass, anchor
from roll_plugin_fsdp.processes import Ranks

_VALUES = frozenset({"values"})


class Trainer:
    """Trains the policy and, where there is one, the critic.

    Args:
        ranks: who trains.
        policy: the model that scores tokens.
        critic: the model of values, if any.
        optimizers: by role ("policy", "critic").
        seed: of the dropout.
    """

    def __init__(
        self,
        ranks: Ranks,
        policy: Scorer,
        critic: Valuer | None,
        optimizers: Mapping[str, ShardedOptimizer],
        seed: int,
    ) -> None:
        self.seed = seed
        self._ranks = ranks
        self._policy = policy
        self._critic = critic
        self._optimizers = optimizers

    def update(self, works: Sequence[Work], passes: Pass) -> Report | None:
        """One optimiser step per mini-batch.

        Returns:
            None when some rank has failed: all leave the mini-batch at which that was, and those after it.
        """
        own, common = Meter(), Meter()
        plans = passes.plans([(self._leader(work), work.batch) for work in works])
        if passes.has_failed():
            return None
        self._train_mode(True)
        try:
            for work, plan in zip(works, plans, strict=True):
                roles = self._wanted(work)
                if not roles:
                    continue  # no term needs a model
                with self._dropout():
                    self._gradients(work, plan, passes, own)
                if passes.has_failed():
                    return None
                for role in roles:
                    self._optimizers[role].step().add_to(common, role)
        finally:
            self._train_mode(False)
        return Report(own.sums, common.sums)

    def _gradients(self, work: Work, plan: Sequence[IndexArray | None], passes: Pass, meter: Meter) -> None:
        """Forward and backward over all micro-batches; an error is kept in `passes`, and the rank stays in step."""
        for role in self._wanted(work):
            self._optimizers[role].shards.begin()
        for number, members in enumerate(plan):
            self._reduce_over_copies(number == len(plan) - 1)
            micro = passes.prepare(self._leader(work), work.batch, members)
            scores, values, own = self._forward(work, micro, members, passes)
            tied = [anchor(out) for out in (scores.logprobs if scores is not None else None, values) if out is not None]
            loss = torch.stack(tied).sum()
            if not own.is_idle:
                found = passes.trap(partial(self._loss, work, micro, scores, values, meter))
                loss = loss if found is None else loss + found
            loss.backward()  # type: ignore[no-untyped-call]  # torch's stub

    def _forward(
        self, work: Work, micro: Micro, members: IndexArray | None, passes: Pass
    ) -> tuple[TokenScores | None, Tensor | None, Micro]:
        """Outputs of the models that the terms need, and the micro-batch they belong to (idle if any part is)."""
        needs = needs_of(work.terms)
        scores = values = None
        last = micro
        if needs - _VALUES:
            scores = self._policy.scores(micro.layout, micro.targets, entropy="entropy" in needs)
        if self._critic is not None and "values" in needs:
            if self._leader(work) is not self._critic.backbone:
                last = passes.prepare(self._critic.backbone, work.batch, None if micro.is_idle else members)
            values = self._critic(last.layout)
        return scores, values, last

    def _loss(
        self, work: Work, micro: Micro, scores: TokenScores | None, values: Tensor | None, meter: Meter
    ) -> Tensor:
        batch, layout = work.batch, micro.layout
        loss = evaluate(work.terms, loss_inputs(batch, layout, scores, values, self._ranks.device), layout, meter)
        meter.add_micro_batch(batch, layout, loss)
        return loss

    # --- parts --------------------------------------------------------------------------------------------------------

    def _wanted(self, work: Work) -> list[str]:
        needs = needs_of(work.terms)
        return [*(["policy"] if needs - _VALUES else []), *(["critic"] if "values" in needs else [])]

    def _leader(self, work: Work) -> Backbone:
        """Whose layout decides on the micro-batches."""
        if self._critic is not None and self._wanted(work) == ["critic"]:
            return self._critic.backbone
        return self._policy.backbone

    def _train_mode(self, on: bool) -> None:
        """Layers only differ in training mode by checkpointing and by the dropout of adapters."""
        self._policy.train(on)
        if self._critic is not None:
            self._critic.train(on)

    def _reduce_over_copies(self, on: bool) -> None:
        """With copies of the model, gradients are summed over them once a step."""
        for model in (self._policy, self._critic):
            if model is not None:
                model.set_requires_all_reduce(on)  # type: ignore[operator]  # FSDP gave it this method

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Random numbers that depend on seed, step and share of the data alone; the process's own stream stays."""
        device = self._ranks.device
        step, _ = self._optimizers["policy"].steps
        key = np.random.SeedSequence([self.seed, step, self._ranks.data_index]).generate_state(1, np.uint64)[0]
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(key >> np.uint64(1)))
            yield
