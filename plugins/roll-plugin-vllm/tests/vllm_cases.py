"""What the tests of the backend share: requests, weights, and a backend around the fake engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch
from fake_vllm_engine import token_at
from inline_executor import InlineExecutor

from roll_core.contracts import TensorInfo
from roll_core.types import GenerateRequest, SamplingParams
from roll_plugin_vllm.asks import mixed_seed
from roll_plugin_vllm.backend import VllmBackend
from roll_plugin_vllm.options import VllmOptions

FAKE = "fake_vllm_engine:start_engine"


class Weights:
    """One tensor, whose value stands for the whole model."""

    def __init__(self, value):
        self.value = value

    def manifest(self):
        return [TensorInfo("w", "float32", (4,))]

    def tensors(self):
        yield "w", torch.full((4,), float(self.value))


class AdapterWeights(Weights):
    def adapter_config(self):
        return {"r": 4, "target_modules": {"q_proj"}}

    def adapter_manifest(self):
        return [TensorInfo("base_model.model.q_proj.lora_A.weight", "float32", (4,))]

    def adapter_tensors(self):
        yield "base_model.model.q_proj.lora_A.weight", torch.full((4,), 10.0 + self.value)


def request(name="r", seed=0, group="", prefix=(), policy=None, **sampling):
    params = SamplingParams(**{"max_new_tokens": 12, **sampling})
    return GenerateRequest((1, 2), params, seed, name, group, prefix, policy)


def expected(one, weights=0, start=0, stop=12):
    seed = 0 if one.sampling.temperature == 0 else mixed_seed(one, 0)
    return [token_at(weights, seed, position) for position in range(start, stop)]


def served(body, folder=Path("model"), executor=None, **options):
    """Run `body(backend)` on a loop of its own."""

    async def run():
        workers = executor or InlineExecutor()
        backend = VllmBackend(model=folder, seed=0, options=VllmOptions(**options), executor=workers, engine=FAKE)
        try:
            await asyncio.wait_for(body(backend), 60)
        finally:
            await backend.close()

    asyncio.run(run())


def versions(done):
    return [(run.start, run.stop, run.policy.version) for run in done.versions]
