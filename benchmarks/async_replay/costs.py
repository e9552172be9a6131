"""How long work takes, measured here with the local engines; one device of the replay is this machine."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from train_rate import clipped_ratio, grpo_batch, random_model

from roll_core.contracts import MiniBatch, OptimSettings, Term, TrainSetup
from roll_core.types import GenerateRequest, SamplingParams

LIVE = (1, 4, 16, 64)
"""Numbers of live requests at which a decode step is measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured durations, in seconds, of one device."""

    decode: dict[int, float]
    """Of one decode step, by the number of live requests."""
    train_token: float
    """Of training one token."""
    sync: float
    """Of handing new weights to the generators; they halt meanwhile."""

    @property
    def slots(self) -> int:
        """The most requests that a device decodes at once: the largest number that was measured."""
        return max(self.decode)

    def step(self, live: int) -> float:
        """Of a decode step with `live` requests: linear between what was measured."""
        known = sorted(self.decode)
        upper = next(n for n in known if n >= live)
        lower = max((n for n in known if n <= live), default=upper)
        if upper == lower:
            return self.decode[upper]
        share = (live - lower) / (upper - lower)
        return self.decode[lower] + share * (self.decode[upper] - self.decode[lower])

    def describe(self) -> str:
        """For the report."""
        decode = ", ".join(f"{n}: {1e3 * s:.1f} ms" for n, s in sorted(self.decode.items()))
        return (
            f"replayed durations of a device: decode step by live requests {decode}; training "
            f"{1e6 * self.train_token:.0f} us a token; new weights {1e3 * self.sync:.0f} ms"
        )


def parse_costs(text: str) -> Costs:
    """Costs written as "1:15,16:26,64:62/2800/100": decode ms by live requests, training us a token, sync ms."""
    decode, train, sync = text.split("/")
    pairs = (pair.split(":") for pair in decode.split(","))
    return Costs({int(n): float(ms) / 1e3 for n, ms in pairs}, float(train) / 1e6, float(sync) / 1e3)


def measure(model: Path | None) -> Costs:
    """Measure on this machine.

    Args:
        model: Hugging Face folder; None takes a randomly initialised model of SmolLM2-135M's shapes.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = model or random_model(Path(scratch))
        train_token, decode, sync = asyncio.run(_measure(folder))
    return Costs(decode, train_token, sync)


async def _measure(model: Path) -> tuple[float, dict[int, float], float]:
    from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
    from roll_core.builtin.local_train.strategy import LocalTrainStrategy

    backend = LocalRolloutBackend(model=model, seed=0, max_slots=max(LIVE))
    strategy = LocalTrainStrategy(setup=TrainSetup(model, OptimSettings(lr=1e-6), 100))
    try:
        await _decode_step(backend, max(LIVE))
        decode = {live: min([await _decode_step(backend, live) for _ in range(3)]) for live in LIVE}
        train = _train_token(strategy)
        seconds = []
        for version in (1, 2, 3):
            started = time.perf_counter()
            backend.sync_weights(strategy.weight_source(), version)
            seconds.append(time.perf_counter() - started)
    finally:
        strategy.close()
        await backend.close()
    return train, decode, min(seconds)


async def _decode_step(backend: object, live: int, new: int = 24) -> float:
    """Seconds of one decode step with `live` requests."""
    from roll_core.builtin.local_rollout.backend import LocalRolloutBackend

    assert isinstance(backend, LocalRolloutBackend)
    sampling = SamplingParams(max_new_tokens=new)
    requests = [GenerateRequest((5, 6, 7), sampling, n, f"{live}/{n}/{time.perf_counter()}") for n in range(live)]
    started = time.perf_counter()
    await asyncio.gather(*(backend.generate(request) for request in requests))
    return (time.perf_counter() - started) / new


def _train_token(strategy: object) -> float:
    """Seconds a trained token of a GRPO batch takes, optimiser included."""
    from roll_core.builtin.local_train.strategy import LocalTrainStrategy

    assert isinstance(strategy, LocalTrainStrategy)
    shape = argparse.Namespace(prompts=4, group_size=8, prompt_tokens=40, response_tokens=100)
    batch = grpo_batch(shape, 1000)
    weights = (batch.loss_mask / batch.loss_mask.sum()).astype(np.float32)
    mini = MiniBatch(np.arange(batch.n_segments), (Term("policy", clipped_ratio, weights),))
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        strategy.update(batch, [mini])
        seconds.append(time.perf_counter() - started)
    return min(seconds) / int(batch.loss_mask.sum())
