"""The arithmetic of a batch: what follows from the sizes in a configuration, and which sizes cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roll_core.config.components import Catalogue, option_defaults
from roll_core.config.problems import Problem
from roll_core.config.resolve import resolve_algorithm, resolve_sampling
from roll_core.config.schema import BatchConfig, RunConfig, ScoringConfig

MICRO_TOKENS = "micro_tokens"
"""Option by which a train strategy bounds the tokens of one micro-batch."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Sizes of one step and of the run. Tokens are upper bounds."""

    prompts: int
    """Admitted groups a step."""
    group_size: int
    mini_batches: int
    epochs: int
    steps: int
    max_prompt_tokens: int
    max_new_tokens: int
    """The largest of any domain."""
    max_draws: int
    """Draws a prompt of the batch may cost on average."""
    micro_tokens: int | None = None
    """Token budget of a micro-batch; None when the strategy has none."""

    @property
    def rollouts(self) -> int:
        """Rollouts a step trains on."""
        return self.prompts * self.group_size

    @property
    def prompts_per_update(self) -> int:
        """Groups of one optimiser step."""
        return self.prompts // self.mini_batches

    @property
    def rollouts_per_update(self) -> int:
        """Rollouts of one optimiser step."""
        return self.prompts_per_update * self.group_size

    @property
    def updates_per_step(self) -> int:
        """Optimiser steps between two weight syncs."""
        return self.mini_batches * self.epochs

    @property
    def total_updates(self) -> int:
        """Optimiser steps of the run."""
        return self.updates_per_step * self.steps

    @property
    def max_rollout_tokens(self) -> int:
        """Tokens of the longest possible rollout, its prompt included."""
        return self.max_prompt_tokens + self.max_new_tokens

    @property
    def max_response_tokens(self) -> int:
        """Sampled tokens a step trains on."""
        return self.rollouts * self.max_new_tokens

    @property
    def max_step_tokens(self) -> int:
        """Tokens of a step's batch, prompts counted once a rollout."""
        return self.rollouts * self.max_rollout_tokens

    @property
    def max_micro_batches(self) -> int | None:
        """Micro-batches of one optimiser step when every rollout is as long as it may be."""
        if self.micro_tokens is None:
            return None
        return -(-self.rollouts_per_update // max(self.micro_tokens // self.max_rollout_tokens, 1))

    @property
    def draw_budget(self) -> int:
        """Prompts a step may draw before it gives up filling its batch."""
        return self.max_draws * self.prompts

    def as_dict(self) -> dict[str, int | None]:
        """Every number by name."""
        return {name: getattr(self, name) for name in (*self.__slots__, *_derived())}

    def render(self) -> list[str]:
        """Lines for people."""
        micro = "the strategy has no token budget"
        if self.micro_tokens is not None:
            micro = f"at most {self.max_micro_batches:,} an update, {self.micro_tokens:,} tokens each"
        rows = [
            ("rollouts", f"{self.rollouts:,} a step = {self.prompts:,} prompts x {self.group_size:,} each"),
            (
                "updates",
                f"{self.updates_per_step:,} a step = {self.mini_batches:,} mini-batches x {self.epochs:,} epochs; "
                f"{self.total_updates:,} in {self.steps:,} steps",
            ),
            ("an update", f"{self.prompts_per_update:,} prompts, {self.rollouts_per_update:,} rollouts"),
            (
                "a rollout",
                f"at most {self.max_rollout_tokens:,} tokens = {self.max_prompt_tokens:,} prompt + "
                f"{self.max_new_tokens:,} response",
            ),
            ("a step", f"at most {self.max_step_tokens:,} tokens, {self.max_response_tokens:,} of them sampled"),
            ("micro-batches", micro),
            ("draws", f"at most {self.draw_budget:,} prompts a step = {self.max_draws:,} x {self.prompts:,}"),
        ]
        return [f"{name:<14} {text}" for name, text in rows]


def plan_batch(config: RunConfig, host: Catalogue | None = None) -> BatchPlan:
    """Solve the sizes of a configuration.

    Args:
        config: the run; `size_problems` says whether its sizes are possible.
        host: tells the default token budget of the train strategy; None when only a written one counts.
    """
    batch = config.batch
    return BatchPlan(
        prompts=batch.prompts,
        group_size=batch.group_size,
        mini_batches=batch.mini_batches,
        epochs=batch.epochs,
        steps=config.steps,
        max_prompt_tokens=batch.max_prompt_tokens,
        max_new_tokens=max(resolve_sampling(config, name).max_new_tokens for name in config.domains),
        max_draws=config.rollout.max_draws,
        micro_tokens=_micro_tokens(config, host),
    )


def size_problems(config: RunConfig, plan: BatchPlan) -> list[Problem]:
    """Sizes and bounds that cannot be, each with the nearest ones that can."""
    return [*_division(config.batch), *_budget(plan), *_algorithm_bounds(config), *_hosts(config.scoring)]


def size_warnings(config: RunConfig) -> list[str]:
    """Sizes that are possible and hardly meant."""
    warnings = []
    if config.batch.group_size == 1:
        text = "batch.group_size is 1: whatever compares the samples of one prompt has nothing to compare"
        named = ", ".join(str(ref.use) for ref in config.filters)
        warnings.append(f"{text}; the filters ({named}) may drop every group" if named else text)
    return warnings


def _micro_tokens(config: RunConfig, host: Catalogue | None) -> int | None:
    ref = config.train.strategy
    value: Any = ref.options.get(MICRO_TOKENS)
    if value is None and host is not None:
        value = option_defaults("train_strategies", ref, host).get(MICRO_TOKENS)
    return None if value is None else int(value)


def _division(batch: BatchConfig) -> Iterator[Problem]:
    prompts, parts = batch.prompts, batch.mini_batches
    if prompts % parts == 0:
        return
    below, above = prompts // parts * parts, (prompts // parts + 1) * parts
    sizes = " or ".join(str(size) for size in (below, above) if size > 0)
    divisors = [n for n in range(1, prompts + 1) if prompts % n == 0]
    fewer = max(n for n in divisors if n < parts)
    more = min((n for n in divisors if n > parts), default=None)
    counts = f"{fewer} or {more}" if more is not None else str(fewer)
    yield Problem(
        ("batch", "mini_batches"),
        f"{prompts} prompts cannot be divided evenly into {parts} mini-batches; "
        f"use batch.prompts {sizes}, or batch.mini_batches {counts}",
    )


def _hosts(scoring: ScoringConfig) -> Iterator[Problem]:
    if scoring.hosts and not scoring.workers:
        text = "a verifier host judges in worker processes of its own; set scoring.workers to 1 or more"
        yield Problem(("scoring", "workers"), f"{text}, or scoring.hosts to 0")


def _budget(plan: BatchPlan) -> Iterator[Problem]:
    if plan.micro_tokens is not None and plan.micro_tokens < plan.max_rollout_tokens:
        room = plan.micro_tokens - plan.max_prompt_tokens
        shorter = f", or max_new_tokens {room} or less" if room > 0 else ""
        yield Problem(
            ("train", "strategy", MICRO_TOKENS),
            f"a rollout may have {plan.max_rollout_tokens} tokens ({plan.max_prompt_tokens} prompt + "
            f"{plan.max_new_tokens} response), more than the {plan.micro_tokens} of a micro-batch; "
            f"use {MICRO_TOKENS} {plan.max_rollout_tokens} or more{shorter}",
        )


def _algorithm_bounds(config: RunConfig) -> Iterator[Problem]:
    for name, domain in config.domains.items():
        algorithm, limit = resolve_algorithm(config, name), resolve_sampling(config, name).max_new_tokens
        place = ("algorithm",) if domain.algorithm is None else ("domains", name, "algorithm")
        buffer, correction = algorithm.overlong.buffer, algorithm.correction
        if buffer > limit:
            yield Problem(
                (*place, "overlong", "buffer"),
                f"{buffer} tokens are more than domain '{name}' may generate (max_new_tokens {limit}); "
                f"use {limit} or less",
            )
        if correction.kind.endswith("mask") and correction.low >= correction.high:
            yield Problem(
                (*place, "correction", "low"),
                f"{correction.low} is not below correction.high {correction.high}, so everything would be masked",
            )


def _derived() -> list[str]:
    return [name for name, value in vars(BatchPlan).items() if isinstance(value, property)]
