"""A backend that makes one token a turn of the event loop, and what the schedulers need around it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np

from roll_core.data import Ledger
from roll_core.rollout.ahead import AheadScheduler
from roll_core.rollout.collected import StepRollouts
from roll_core.rollout.groups import GroupRunner
from roll_core.types import (
    Completion,
    GenerateRequest,
    PolicyRef,
    Prompt,
    RewardRecord,
    Rollout,
    RolloutGroup,
    SamplingParams,
    Ticket,
    Verdict,
    VersionRun,
)

PROMPT = (5, 6, 7)
B = 4


def token(seed: int, position: int) -> int:
    """The token at a position of a random stream."""
    return 10 + (seed * 31 + position * 7) % 89


class SteppedBackend:
    """Tokens depend on (seed, position) alone; `length(request)` says how many. Weights may change under it."""

    def __init__(self, length: Any) -> None:
        self._length = length
        self.policy_version = 0
        self.requests: list[GenerateRequest] = []
        self.running: set[str] = set()
        self._aborted: set[str] = set()

    async def generate(self, request: GenerateRequest) -> Completion:
        self.requests.append(request)
        key, done = request.request_id, len(request.prefix_ids)
        self.running.add(key)
        tokens, versions = [], []
        try:
            while done + len(tokens) < self._length(request) and key not in self._aborted:
                await asyncio.sleep(0)
                tokens.append(token(request.seed, done + len(tokens)))
                versions.append(self.policy_version)
        finally:
            self.running.discard(key)
        is_cut = key in self._aborted and done + len(tokens) < self._length(request)
        self._aborted.discard(key)
        return Completion(
            request_id=key,
            token_ids=np.array(tokens, np.int32),
            logprobs=-np.array(versions, np.float32),
            versions=tuple(VersionRun(i, i + 1, PolicyRef(v)) for i, v in enumerate(versions)),
            finish_reason="abort" if is_cut else "stop",
            columns={"odd": np.array(tokens, np.int64) % 2},
        )

    def abort(self, request_id: str) -> None:
        if request_id in self.running:
            self._aborted.add(request_id)

    def sync_weights(self, source: Any, version: int) -> None:
        self.policy_version = version

    def set_barrier(self, barrier: Any) -> None:
        pass

    async def close(self) -> None:
        pass


class LengthScoring:
    """The score is whether the last token is even."""

    async def score(self, rollout: Rollout) -> None:
        await asyncio.sleep(0)
        right = int(rollout.segments[0].token_ids[-1]) % 2 == 0
        rollout.verdict = Verdict.correct("x", detail="even") if right else Verdict.incorrect(detail="odd")

    def compose(self, group: RolloutGroup) -> None:
        for rollout in group.scored:
            rollout.rewards = [RewardRecord("score", rollout.score or 0.0)]


class Prompts:
    """Numbered prompts, at most `limit`."""

    def __init__(self, limit: int = 10_000) -> None:
        self.next, self.limit = 0, limit

    def draw(self, count: int, step: int) -> list[tuple[Ticket, Prompt]]:
        stop = min(self.next + count, self.limit)
        tickets = [Ticket(n, "d", f"p{n}", n) for n in range(self.next, stop)]
        self.next = stop
        return [(ticket, self.prompt_of(ticket)) for ticket in tickets]

    def prompt_of(self, ticket: Ticket) -> Prompt:
        return Prompt(ticket.prompt_id, "d", text="x", token_ids=PROMPT)

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: Any) -> None:
        self.next = state["next"]


def ticket_of(request: GenerateRequest) -> int:
    return int(request.request_id.split(":")[1].split("/")[0])


def runner(backend: SteppedBackend, books: Ledger | None = None, **options: Any) -> GroupRunner:
    defaults: dict[str, Any] = {
        "backend": backend,
        "scoring": LengthScoring(),
        "books": books or Ledger(["d"]),
        "decode": lambda ids: " ".join(map(str, ids)),
        "filters": [],
        "sampling": {"d": SamplingParams(max_new_tokens=10_000)},
        "group_size": 2,
        "seed_of": lambda ticket, index, attempt: ticket.id * 100 + index + 10_000 * attempt,
    }
    return GroupRunner(**(defaults | options))


def request(key: str = "d:0/0/0", seed: int = 3) -> GenerateRequest:
    return GenerateRequest(PROMPT, SamplingParams(max_new_tokens=99), seed, key)


def ahead(backend: SteppedBackend, *, steps: int, staleness: int, draw: Prompts | None = None, **options: Any) -> Any:
    own = {name: options.pop(name) for name in ("on_stale", "max_draws") if name in options}
    groups = runner(backend, **options)
    defaults: dict[str, Any] = {"prompts": B, "steps": steps, "max_staleness": staleness, "max_draws": 40}
    return AheadScheduler(groups, draw or Prompts(), **(defaults | own))


async def run_steps(feed: Any, backend: SteppedBackend, steps: range, update_turns: int) -> list[StepRollouts]:
    """What the engine does, with an update that takes a number of turns of the event loop."""
    books = feed._groups.books
    results = []
    for step in steps:
        backend.sync_weights(None, step)
        feed.advance(step)
        result = await feed.collect(step, B)
        for _ in range(update_turns):
            await asyncio.sleep(0)
        for group in result.admitted:
            books.train(group.ticket.id, 1)
        books.close(step, {"d": 1.0})
        results.append(result)
    return results


async def train(feed: Any, backend: SteppedBackend, steps: range, update_turns: int) -> list[list[RolloutGroup]]:
    """The groups that each step trained."""
    return [result.admitted for result in await run_steps(feed, backend, steps, update_turns)]


def is_long(ticket: int) -> bool:
    """One prompt in ten."""
    return random.Random(f"{ticket}").random() < 0.1


def skewed(request: GenerateRequest) -> int:
    """Some answers are thirty times as long as the others."""
    return 300 if is_long(ticket_of(request)) else 10
