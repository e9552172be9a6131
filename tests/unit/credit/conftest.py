"""Toy groups, batches and a stand-in for a train strategy that evaluates an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.builtin.plugin import roll_register_advantages, roll_register_policy_losses
from roll_core.config.schema import AlgorithmConfig
from roll_core.contracts import LossInputs, MiniBatch
from roll_core.credit import DomainAlgorithm
from roll_core.types import (
    Batch,
    Prompt,
    RewardRecord,
    Rollout,
    RolloutGroup,
    Segment,
    Ticket,
    Verdict,
    batch_of,
)

PROMPT_LENGTH = 2
COMPONENTS = {
    "advantage": {c.name: c for c in roll_register_advantages()},
    "loss": {c.name: c for c in roll_register_policy_losses()},
}


def build_component(kind: str, ref: Any) -> Any:
    """What the engine does with a reference."""
    return COMPONENTS[kind][ref.use].build(ref.options) if isinstance(ref.use, str) else ref.use


@pytest.fixture(scope="session")
def algorithm() -> Callable[..., DomainAlgorithm]:
    """Build a domain's algorithm out of config values."""

    def build(*, weight: float = 1.0, max_new_tokens: int = 16, **values: Any) -> DomainAlgorithm:
        config = AlgorithmConfig.model_validate(values)
        return DomainAlgorithm(
            config,
            build_component("advantage", config.advantage),
            build_component("loss", config.loss),
            weight,
            max_new_tokens,
        )

    return build


def make_rollout(ticket: Ticket, index: int, reward: float | None, length: int, finish: str = "stop") -> Rollout:
    """One answer of `length` tokens after a prompt of two; `reward` None means the machinery failed."""
    rng = np.random.default_rng([ticket.id, index + 1])
    n = PROMPT_LENGTH + length
    mask = np.arange(n) >= PROMPT_LENGTH
    segment = Segment(
        token_ids=rng.integers(0, 50, n).astype(np.int32),
        response_mask=mask,
        loss_mask=mask.copy(),
        rollout_logprobs=np.where(mask, -1 - 0.3 * rng.random(n), 0).astype(np.float32),
    )
    if reward is None:
        verdict, rewards = Verdict.error("broken"), []
    else:
        score = min(max(reward, 0.0), 0.99)
        verdict, rewards = Verdict.incorrect(score=score), [RewardRecord("verdict", reward)]
    prompt = Prompt(ticket.prompt_id, ticket.domain)
    return Rollout(ticket, index, prompt, [segment], "", finish, verdict=verdict, rewards=rewards)


@pytest.fixture(scope="session")
def rollout() -> Callable[..., Rollout]:
    return make_rollout


@pytest.fixture(scope="session")
def group() -> Callable[..., RolloutGroup]:
    """A group of (reward, length) pairs."""

    def build(ticket_id: int, domain: str, samples: Sequence[tuple[float | None, int]]) -> RolloutGroup:
        ticket = Ticket(ticket_id, domain, f"p{ticket_id}")
        rollouts = [make_rollout(ticket, i, reward, length) for i, (reward, length) in enumerate(samples)]
        return RolloutGroup(ticket, Prompt(ticket.prompt_id, domain), rollouts)

    return build


@pytest.fixture(scope="session")
def make_batch(group) -> Callable[..., Batch]:
    """A batch of `count` groups per domain with ragged answers, and random values of the named columns."""

    def build(domains: Mapping[str, int], *columns: str, seed: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        groups = []
        for domain, count in domains.items():
            for _ in range(count):
                samples = [(float(rng.choice([0.0, 0.3, 0.9])), int(rng.integers(1, 7))) for _ in range(3)]
                groups.append(group(len(groups), domain, samples))
        batch = batch_of(groups, list(domains))
        for name in columns:
            noise = 0.3 * rng.normal(size=batch.n_tokens)
            base = np.zeros(batch.n_tokens) if name == "values" else batch.rollout_logprobs
            batch.add(name, (base + noise).astype(np.float32))
        return batch

    return build


@pytest.fixture(scope="session")
def evaluate() -> Callable[..., tuple[float, np.ndarray, dict[str, float]]]:
    """Evaluate a mini-batch's objective as a strategy would, in float64 and in `splits` micro-batches.

    Returns the objective's value, its gradient with respect to the log-probs [N], and the metrics.
    """

    def run(batch: Batch, mini_batch: MiniBatch, splits: int = 1) -> tuple[float, np.ndarray, dict[str, float]]:
        rng = np.random.default_rng(5)
        noise = 0.1 * rng.normal(size=batch.n_tokens)
        logprobs = torch.tensor(batch.rollout_logprobs + noise, dtype=torch.float64, requires_grad=True)
        metrics: dict[str, Any] = {}
        value = 0.0
        for part in np.array_split(mini_batch.segments, splits):
            at = np.flatnonzero(np.isin(batch.token_segment, part))
            for term in mini_batch.terms:
                inputs = _inputs(batch, term, logprobs, at, metrics)
                total = (term.fn(inputs) * torch.tensor(term.weights[at]).double()).sum()
                total.backward()
                value += float(total.detach())
        means = {name: float(total / count) for name, (total, count) in metrics.items() if count > 0}
        return value, logprobs.grad.numpy(), means

    return run


def _inputs(batch: Batch, term: Any, logprobs: torch.Tensor, at: np.ndarray, metrics: dict[str, Any]) -> LossInputs:
    def tensor(values: np.ndarray | None) -> torch.Tensor | None:
        return None if values is None else torch.tensor(values[at]).double()

    here = logprobs[at]
    segments = np.unique(batch.token_segment[at], return_inverse=True)[1]
    old = batch.columns.get("old_logprobs")
    mask = batch.loss_mask if term.mask is None else term.mask
    return LossInputs(
        logprobs=here,
        old_logprobs=here.detach() if old is None else tensor(old),
        rollout_logprobs=tensor(batch.rollout_logprobs),
        advantages=tensor(batch.columns["advantages"] if term.advantages is None else term.advantages),
        mask=torch.tensor(mask[at]),
        segment_ids=torch.tensor(segments),
        n_segments=int(segments.max()) + 1,
        entropy=-here * here.detach().exp() if "entropy" in term.needs else None,
        full_logprobs=here if "full_logprobs" in term.needs else None,
        ref_logprobs=tensor(batch.columns.get("ref_logprobs")),
        values=here * 0.5 if "values" in term.needs else None,
        old_values=tensor(batch.columns.get("values")),
        returns=tensor(batch.columns.get("returns")),
        metrics=metrics,
    )
