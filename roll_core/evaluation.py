"""Held-out accuracy: sampled and greedy, unbiased pass@k, confidence intervals, per domain.

Every evaluation of a run uses the same prompts, sampling parameters, token limits and random streams, so "before" and
"after" differ only in the weights. Rollouts without a score leave the statistics and are counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roll_core.contracts import RolloutBackend
from roll_core.rollout.collected import first_leaf
from roll_core.rollout.single_turn import Decode, single_turn
from roll_core.rooms import Scoring, SeedOf
from roll_core.types import Prompt, Rollout, SamplingParams, Status, Ticket

Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share with its 95 % confidence interval; `n` independent prompts."""

    value: float
    n: int
    low: float
    high: float


def wilson(value: float, n: int) -> Proportion:
    """Wilson's score interval of a share `value` over `n` independent trials (Wilson 1927)."""
    if n == 0:
        return Proportion(math.nan, 0, math.nan, math.nan)
    centre = (value + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * math.sqrt(value * (1 - value) / n + Z_95**2 / (4 * n**2))
    return Proportion(value, n, max(0.0, centre - half), min(1.0, centre + half))


def clustered(rates: Sequence[float]) -> Proportion:
    """Mean of per-prompt pass rates; the prompts are the independent units, not their samples.

    With rates of 0 and 1 only (one sample a prompt) this is Wilson's interval.
    """
    n = len(rates)
    if n == 0 or all(r in (0.0, 1.0) for r in rates):
        return wilson(sum(rates) / n if n else 0.0, n)
    mean = sum(rates) / n
    variance = sum((r - mean) ** 2 for r in rates) / max(1, n - 1)
    half = Z_95 * math.sqrt(variance / n)
    return Proportion(mean, n, max(0.0, mean - half), min(1.0, mean + half))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased estimate of "at least one of k samples is right" from `correct` of `n` (Chen et al. 2021, eq. 1)."""
    if not 1 <= k <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n, got k={k}, n={n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


@dataclass(frozen=True, slots=True)
class DomainResult:
    """Outcome of one domain's held-out set."""

    sampled: Proportion
    greedy: Proportion | None
    pass_at: Mapping[int, float]
    """Unbiased pass@k for powers of two up to the number of samples."""
    unscored: int
    """Rollouts without a score: the machinery's failures."""
    mean_tokens: float
    truncated: float
    """Share of sampled answers that hit the token limit."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; null where there was nothing to measure."""

        def share(p: Proportion | None) -> dict[str, Any] | None:
            return None if p is None else asdict(p) | ({} if p.n else dict.fromkeys(("value", "low", "high")))

        return asdict(self) | {"sampled": share(self.sampled), "greedy": share(self.greedy)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DomainResult:
        """Inverse of `as_dict`, also after a round trip through JSON."""

        def share(p: Mapping[str, Any]) -> Proportion:
            return Proportion(**p) if p["n"] else wilson(0.0, 0)

        return cls(
            sampled=share(data["sampled"]),
            greedy=share(data["greedy"]) if data["greedy"] else None,
            pass_at={int(k): v for k, v in data["pass_at"].items()},
            unscored=data["unscored"],
            mean_tokens=data["mean_tokens"],
            truncated=data["truncated"],
        )


@dataclass(slots=True)
class Evaluator:
    """Evaluates the policy that `backend` holds.

    Args:
        backend: generates tokens.
        scoring: gives verdicts.
        decode: token ids to text.
        prompts: held-out prompts by domain.
        sampling: sampling parameters by domain, the training ones.
        samples: sampled answers per prompt.
        greedy: whether to decode greedily too.
        seed_of: seed of each sample.
    """

    backend: RolloutBackend
    scoring: Scoring
    decode: Decode
    prompts: Mapping[str, Sequence[Prompt]]
    sampling: Mapping[str, SamplingParams]
    samples: int
    greedy: bool
    seed_of: SeedOf

    async def run(self) -> dict[str, DomainResult]:
        """Evaluate every domain."""
        jobs: list[tuple[str, int]] = []
        tasks: list[asyncio.Task[Rollout]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for domain, prompts in self.prompts.items():
                    for position, prompt in enumerate(prompts):
                        for index in self._indices():
                            jobs.append((domain, position))
                            tasks.append(group.create_task(self._one(domain, position, prompt, index)))
        except BaseExceptionGroup as failures:
            raise first_leaf(failures) from failures
        rows = [(domain, position, task.result()) for (domain, position), task in zip(jobs, tasks, strict=True)]
        return {name: _summarise([(p, r) for d, p, r in rows if d == name]) for name in self.prompts}

    def _indices(self) -> list[int]:
        return [*range(self.samples), *([-1] if self.greedy else [])]

    async def _one(self, domain: str, position: int, prompt: Prompt, index: int) -> Rollout:
        ticket = Ticket(-1 - position, domain, prompt.id, position)
        sampling = self.sampling[domain]
        rollout = await single_turn(
            self.backend,
            self.decode,
            ticket=ticket,
            prompt=prompt,
            index=index,
            sampling=sampling if index >= 0 else sampling.greedy(),
            seed=self.seed_of(ticket, index, 0),
        )
        await self.scoring.score(rollout)
        return rollout


def _summarise(rows: Sequence[tuple[int, Rollout]]) -> DomainResult:
    sampled: dict[int, list[bool]] = {}
    greedy: list[float] = []
    for position, rollout in rows:
        if rollout.verdict is None or not rollout.is_scored:
            continue
        is_right = rollout.verdict.status is Status.CORRECT
        if rollout.index < 0:
            greedy.append(float(is_right))
        else:
            sampled.setdefault(position, []).append(is_right)
    drawn = [r for _, r in rows if r.index >= 0]
    least = min((len(v) for v in sampled.values()), default=0)
    ks = [2**i for i in range(least.bit_length()) if 2**i <= least]
    return DomainResult(
        sampled=clustered([sum(v) / len(v) for v in sampled.values()]),
        greedy=clustered(greedy) if any(r.index < 0 for _, r in rows) else None,
        pass_at={k: sum(pass_at_k(len(v), sum(v), k) for v in sampled.values()) / len(sampled) for k in ks},
        unscored=sum(not r.is_scored for _, r in rows),
        mean_tokens=sum(r.response_length for r in drawn) / max(1, len(drawn)),
        truncated=sum(r.is_truncated for r in drawn) / max(1, len(drawn)),
    )


def metrics_of(results: Mapping[str, DomainResult]) -> dict[str, float]:
    """Flat metrics `eval/<what>/<domain>` and the means over domains."""
    flat: dict[str, float] = {}
    for domain, result in results.items():
        flat[f"eval/accuracy/{domain}"] = result.sampled.value
        if result.greedy is not None:
            flat[f"eval/greedy_accuracy/{domain}"] = result.greedy.value
        flat[f"eval/unscored/{domain}"] = float(result.unscored)
        flat[f"eval/mean_tokens/{domain}"] = result.mean_tokens
        flat.update({f"eval/pass_at_{k}/{domain}": v for k, v in result.pass_at.items()})
    values = [r.sampled.value for r in results.values()]
    flat["eval/accuracy/mean"] = sum(values) / len(values) if values else math.nan
    return flat
