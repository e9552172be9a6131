"""The local backend and strategy, each with one planted fault."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.contracts import TrainSetup
from roll_core.types import VersionRun


class Backend:
    def __init__(self, model: Path, seed: int) -> None:
        self.inner = LocalRolloutBackend(model=model, seed=seed)
        self.calls = 0

    @property
    def policy_version(self):
        return self.inner.policy_version

    async def generate(self, request):
        self.calls += 1
        return self.change(await self.inner.generate(self.prepare(request)))

    def prepare(self, request):
        return request

    def change(self, done):
        return done

    def abort(self, request_id):
        self.inner.abort(request_id)

    def sync_weights(self, source, version):
        self.inner.sync_weights(source, version)

    def set_barrier(self, barrier):
        self.inner.set_barrier(barrier)

    async def close(self):
        await self.inner.close()


class LosesALogprob(Backend):
    def change(self, done):
        return replace(done, logprobs=done.logprobs[:-1])


class HalvesLogprobs(Backend):
    def change(self, done):
        return replace(done, logprobs=done.logprobs / 2)


class IgnoresTheSeed(Backend):
    def prepare(self, request):
        return replace(request, seed=0)


class DrawsAnew(Backend):
    def prepare(self, request):
        return replace(request, seed=request.seed + 1000 * self.calls)


class CutsTheStopToken(Backend):
    def change(self, done):
        n = len(done.token_ids) - (done.finish_reason == "stop")
        runs = tuple(VersionRun(r.start, min(r.stop, n), r.policy) for r in done.versions)
        return replace(done, token_ids=done.token_ids[:n], logprobs=done.logprobs[:n], versions=runs)


class KeepsItsWeights(Backend):
    @property
    def policy_version(self):
        return getattr(self, "version", 0)

    def sync_weights(self, source, version):
        self.version = version

    def change(self, done):
        policy = replace(done.versions[0].policy, version=self.policy_version)
        return replace(done, versions=(replace(done.versions[0], policy=policy),))


class NeverAborts(Backend):
    def abort(self, request_id):
        pass


class BreaksOnCancel(Backend):
    async def generate(self, request):
        if getattr(self, "is_broken", False):
            raise RuntimeError("slot lost")
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            self.is_broken = True
            raise


class ForgetsThePrefix(Backend):
    def prepare(self, request):
        return replace(request, prefix_ids=())


class Strategy(LocalTrainStrategy):
    def __init__(self, micro_tokens: int = 4096, *, setup: TrainSetup) -> None:
        super().__init__(micro_tokens=micro_tokens, setup=setup)
        self.is_small = micro_tokens < 100


class Trembles(Strategy):
    def compute(self, batch, columns):
        self.passes = getattr(self, "passes", 0) + 1
        return {name: c + np.float32(1e-3 * self.passes) for name, c in super().compute(batch, columns).items()}


class NeverLearns(Strategy):
    def update(self, batch, mini_batches):
        return {}


class LoadsNothing(Strategy):
    def load(self, folder):
        pass


class CountsSmallOnesTwice(Strategy):
    def update(self, batch, mini_batches):
        factor = np.float32(2 if self.is_small else 1)
        doubled = [
            replace(m, terms=tuple(replace(t, weights=t.weights * factor) for t in m.terms)) for m in mini_batches
        ]
        return super().update(batch, doubled)


class PublishesOldWeights(Strategy):
    def weight_source(self):
        if not hasattr(self, "frozen"):
            source = super().weight_source()
            self.frozen = Frozen(source.manifest(), [(n, t.detach().clone()) for n, t in source.tensors()])
        return self.frozen


class Frozen:
    def __init__(self, infos, kept) -> None:
        self.infos, self.kept = infos, kept

    def manifest(self):
        return self.infos

    def tensors(self):
        yield from self.kept


class ExportsNoTokenizer(Strategy):
    def export(self, folder):
        super().export(folder)
        for path in folder.glob("tokenizer*"):
            path.unlink()
