from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.testing.tiny import make_tiny_model
from roll_core.types import Completion, GenerateRequest, SamplingParams


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def reference(tiny: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32).eval()


@pytest.fixture
def backend(tiny: Path) -> Iterator[LocalRolloutBackend]:
    made = LocalRolloutBackend(model=tiny, seed=3, max_slots=8, precision="float32")
    yield made
    asyncio.run(made.close())


def request(token_ids: Any, name: str = "r", seed: int = 1, prefix: Any = (), **sampling: Any) -> GenerateRequest:
    return GenerateRequest(
        tuple(token_ids), SamplingParams(**sampling), seed, name, prefix_ids=tuple(int(t) for t in prefix)
    )


async def generate(backend: LocalRolloutBackend, *requests: GenerateRequest) -> list[Completion]:
    return list(await asyncio.gather(*map(backend.generate, requests)))


@pytest.fixture
def run() -> Any:
    return lambda backend, *requests: asyncio.run(generate(backend, *requests))


@pytest.fixture
def make() -> Any:
    return request
