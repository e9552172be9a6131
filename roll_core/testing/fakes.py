"""Small stand-ins for data and engines, so that a test says only what it is about.

Everything is deterministic: the same arguments give the same arrays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from roll_core.contracts import RunInfo, WeightSource
from roll_core.types import (
    Batch,
    Completion,
    FinishReason,
    GenerateRequest,
    PolicyRef,
    Prompt,
    RewardRecord,
    Rollout,
    RolloutGroup,
    Segment,
    Ticket,
    Verdict,
    VersionRun,
    batch_of,
)

VOCABULARY = 50
"""Fake token ids lie in `3:VOCABULARY`, so that they are valid for the tiny model and no special tokens."""


def make_prompt(text: str = "1+1=", *, ticket: int = 0, domain: str = "fake", reference: Any = "2") -> Prompt:
    """A one-message prompt; its id is derived from `ticket`."""
    messages = ({"role": "user", "content": text},)
    return Prompt(id=f"p{ticket}", domain=domain, messages=messages, reference=reference)


def make_segment(
    prompt_length: int = 3, response_length: int = 4, *, seed: int = 0, prompt_seed: int = 0, version: int = 0
) -> Segment:
    """A prompt of unsampled tokens (drawn from `prompt_seed`) and sampled ones with log-probs in (-2, 0)."""
    rng = np.random.default_rng(seed)
    n = prompt_length + response_length
    prompt = np.random.default_rng(prompt_seed).integers(3, VOCABULARY, prompt_length)
    mask = np.arange(n) >= prompt_length
    logprobs = np.where(mask, -2.0 * rng.random(n), 0.0).astype(np.float32)
    return Segment(
        token_ids=np.concatenate([prompt, rng.integers(3, VOCABULARY, response_length)]).astype(np.int32),
        response_mask=mask,
        loss_mask=mask.copy(),
        rollout_logprobs=logprobs,
        versions=(VersionRun(prompt_length, n, PolicyRef(version)),),
    )


def make_verdict(score: float | None) -> Verdict:
    """The verdict of a score: 1 is correct, below 1 incorrect, None a failure of the machinery."""
    if score is None:
        return Verdict.error("fake failure", detail="fake")
    return Verdict.correct() if score >= 1.0 else Verdict.incorrect(score=score)


def make_rollout(
    score: float | None = 1.0,
    *,
    index: int = 0,
    ticket: int = 0,
    domain: str = "fake",
    response: str | None = None,
    reward: float | None = None,
    prompt_length: int = 3,
    response_length: int = 4,
    finish_reason: FinishReason = "stop",
    prompt: Prompt | None = None,
    version: int = 0,
) -> Rollout:
    """One single-segment rollout.

    Args:
        score: raw task metric; None stands for a failure of the machinery.
        index: which of the group's samples it is; -1 for a greedy baseline.
        ticket: number of its draw. Rollouts of one ticket share their prompt tokens.
        domain: name of its domain.
        response: the text; by default it tells the index and score.
        reward: value of a single reward record; None takes the score (no record where there is none).
        prompt_length: tokens of the prompt.
        response_length: sampled tokens.
        finish_reason: why generation ended.
        prompt: the task; made from ticket and domain by default.
        version: policy version that sampled them.
    """
    value = score if reward is None else reward
    prompt = prompt or make_prompt(ticket=ticket, domain=domain)
    return Rollout(
        ticket=Ticket(ticket, domain, prompt.id, position=ticket),
        index=index,
        prompt=prompt,
        segments=[
            make_segment(
                prompt_length,
                response_length,
                seed=1000 * ticket + index + 1,
                prompt_seed=ticket,
                version=version,
            )
        ],
        response=f"answer {index} scores {score}" if response is None else response,
        finish_reason=finish_reason,
        verdict=make_verdict(score),
        rewards=[] if value is None else [RewardRecord("fake", float(value))],
    )


def make_group(
    scores: Sequence[float | None],
    *,
    ticket: int = 0,
    domain: str = "fake",
    responses: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    rewards: Sequence[float] | None = None,
    prompt_length: int = 3,
    greedy_score: float | None = None,
) -> RolloutGroup:
    """A group with one rollout per score.

    Args:
        scores: raw task metric of each sample; None stands for a failure of the machinery.
        ticket: number of the draw.
        domain: name of the domain.
        responses: their texts.
        lengths: their sampled tokens; 4, 5, 6, … by default.
        rewards: their rewards; the scores by default.
        prompt_length: tokens of the shared prompt.
        greedy_score: score of the greedy baseline; None leaves it out.
    """
    prompt = make_prompt(ticket=ticket, domain=domain)

    def one(i: int, score: float | None) -> Rollout:
        return make_rollout(
            score,
            index=i,
            ticket=ticket,
            domain=domain,
            prompt=prompt,
            response=responses[i] if responses else None,
            reward=rewards[i] if rewards else None,
            response_length=lengths[i] if lengths else 4 + i,
            prompt_length=prompt_length,
        )

    greedy = None if greedy_score is None else make_rollout(greedy_score, index=-1, ticket=ticket, prompt=prompt)
    return RolloutGroup(Ticket(ticket, domain, prompt.id, ticket), prompt, [one(*p) for p in enumerate(scores)], greedy)


def make_batch(
    lengths: Sequence[int] = (4, 5, 6, 7),
    prompt_lengths: Sequence[int] | int = 3,
    groups: Sequence[int] | None = None,
    rewards: Sequence[float] | None = None,
    *,
    domains: Sequence[str] = ("fake",),
    group_domains: Mapping[int, str] | None = None,
) -> Batch:
    """A batch of single-segment rollouts.

    Args:
        lengths: sampled tokens of each rollout [B].
        prompt_lengths: prompt tokens of each rollout [B], or one number for all. Rollouts of one group share them.
        groups: group of each rollout [B], ascending; all in one group by default.
        rewards: reward and score of each rollout [B] in [0, 1]; 0, 1, 0, 1, … by default.
        domains: the run's domains.
        group_domains: domain of each group; the first domain by default.
    """
    n = len(lengths)
    groups = [0] * n if groups is None else list(groups)
    rewards = [float(i % 2) for i in range(n)] if rewards is None else rewards
    prompts = [prompt_lengths] * n if isinstance(prompt_lengths, int) else list(prompt_lengths)
    made = []
    for group in sorted(set(groups)):
        rows = [i for i in range(n) if groups[i] == group]
        domain = (group_domains or {}).get(group, domains[0])
        made.append(
            make_group(
                [min(max(rewards[i], 0.0), 1.0) for i in rows],
                rewards=[rewards[i] for i in rows],
                lengths=[lengths[i] for i in rows],
                prompt_length=prompts[rows[0]],
                ticket=group,
                domain=domain,
            )
        )
    return batch_of(made, domains)


Script = Callable[[GenerateRequest], Sequence[int]]


class FakeBackend:
    """A rollout backend that follows a script instead of a model.

    Args:
        script: token lists handed out in turn (again from the start when used up), or a function of the request.
        delays: scheduler turns (`asyncio.sleep(0)`) each call waits, in turn; none by default.
    """

    def __init__(self, script: Sequence[Sequence[int]] | Script, *, delays: Sequence[int] = (0,)) -> None:
        self._script = script
        self._delays = delays
        self._aborted: set[str] = set()
        self._barrier: Callable[[], Awaitable[None]] | None = None
        self.requests: list[GenerateRequest] = []
        """Every request seen, in order."""
        self.policy_version = 0
        self.is_closed = False

    async def generate(self, request: GenerateRequest) -> Completion:
        """Return the scripted tokens, cut at `max_new_tokens` and after a stop token."""
        number = len(self.requests)
        self.requests.append(request)
        version = self.policy_version
        for _ in range(self._delays[number % len(self._delays)]):
            await asyncio.sleep(0)
            if request.request_id in self._aborted:
                return _completion(request, (), "abort", version)
        scripted = self._script(request) if callable(self._script) else self._script[number % len(self._script)]
        tokens, reason = _cut(list(scripted), request)
        if self._barrier is not None:
            await self._barrier()
        return _completion(request, tokens, reason, version)

    def abort(self, request_id: str) -> None:
        """Let a waiting call return without tokens."""
        self._aborted.add(request_id)

    def sync_weights(self, source: WeightSource, version: int) -> None:  # a script has no weights
        """Take over the version."""
        self.policy_version = version

    def set_barrier(self, barrier: Callable[[], Awaitable[None]] | None) -> None:
        """Await `barrier` before each call returns."""
        self._barrier = barrier

    async def close(self) -> None:
        """Remember that the backend was closed."""
        self.is_closed = True


def _cut(tokens: list[int], request: GenerateRequest) -> tuple[list[int], FinishReason]:
    room = request.sampling.max_new_tokens - len(request.prefix_ids)
    for i, token in enumerate(tokens[:room]):
        if token in request.sampling.stop_token_ids:
            return tokens[: i + 1], "stop"
    return (tokens[:room], "length") if len(tokens) >= room else (tokens, "stop")


def _completion(request: GenerateRequest, tokens: Sequence[int], reason: FinishReason, version: int) -> Completion:
    n = len(tokens)
    return Completion(
        request_id=request.request_id,
        token_ids=np.array(tokens, dtype=np.int32),
        logprobs=np.full(n, -1.0, dtype=np.float32),
        versions=(VersionRun(0, n, PolicyRef(version)),) if n else (),
        finish_reason=reason,
    )


class FakeTracker:
    """Remembers everything it is told."""

    def __init__(self) -> None:
        self.runs: list[RunInfo] = []
        self.metrics: list[tuple[int, dict[str, float]]] = []
        self.rollouts: list[tuple[int, list[RolloutGroup]]] = []
        self.statuses: list[str] = []

    def start(self, run: RunInfo) -> None:
        """Remember the run."""
        self.runs.append(run)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Remember the metrics."""
        self.metrics.append((step, dict(metrics)))

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Remember the groups."""
        self.rollouts.append((step, list(groups)))

    def finish(self, status: str) -> None:
        """Remember the status."""
        self.statuses.append(status)
