"""Evaluation while rollouts go on: one version, the answers of a quiet backend, and neither waits for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from stepped import PROMPT, B, LengthScoring, SteppedBackend, ahead, skewed  # noqa: E402 - after the path

from roll_core.evaluation import DomainResult, Evaluator  # noqa: E402
from roll_core.types import GenerateRequest, Prompt, SamplingParams  # noqa: E402

SLOTS = 5
"""Fewer than an evaluation or the rollouts ahead would fill."""
STEPS = 12


class Slotted(SteppedBackend):
    """Serves a few requests at a time, and notes the versions that evaluations met."""

    def __init__(self) -> None:
        super().__init__(lambda r: 25 if is_evaluation(r) else skewed(r))
        self._slots = asyncio.Semaphore(SLOTS)
        self.met: set[int] = set()

    async def generate(self, request: GenerateRequest) -> Any:
        async with self._slots:
            completion = await super().generate(request)
        if is_evaluation(request):
            self.met |= {run.policy.version for run in completion.versions}
        return completion


def is_evaluation(request: GenerateRequest) -> bool:
    """Its tickets count down from -1."""
    return request.request_id.startswith("d:-")


def evaluator(backend: Any) -> Evaluator:
    return Evaluator(
        backend=backend,
        scoring=LengthScoring(),
        decode=str,
        prompts={"d": [Prompt(f"e{n}", "d", text="x", token_ids=PROMPT) for n in range(9)]},
        sampling={"d": SamplingParams(max_new_tokens=99)},
        samples=2,
        greedy=True,
        seed_of=lambda ticket, index, attempt: 7 * ticket.id + index + 1000,
    )


@pytest.mark.parametrize("policy", ["wait", "drop", "correct"])
def test_an_evaluation_sees_one_version_and_changes_no_rollout(policy: str) -> None:
    async def body() -> tuple[list[tuple[set[int], DomainResult]], set[int], int]:
        backend = Slotted()
        feed = ahead(backend, steps=STEPS, staleness=2, on_stale=policy)
        books, seen, trained = feed._groups.books, [], set()
        for step in range(STEPS):
            backend.sync_weights(None, step)
            feed.advance(step)
            backend.met.clear()
            result = (await evaluator(backend).run())["d"]
            seen.append((set(backend.met), result))
            batch = await feed.collect(step, B)
            for group in batch.admitted:
                books.train(group.ticket.id, 1)
                trained.add(group.ticket.id)
            books.close(step, {"d": 1.0})
        return seen, trained, feed.open

    async def quiet() -> DomainResult:
        return (await evaluator(Slotted()).run())["d"]

    seen, trained, left = asyncio.run(asyncio.wait_for(body(), 60))
    alone = asyncio.run(quiet())
    assert [versions for versions, _ in seen] == [{step} for step in range(STEPS)]
    assert all(result == alone for _, result in seen)
    assert len(trained) == STEPS * B and left == 0
    assert policy == "drop" or trained == set(range(STEPS * B))
