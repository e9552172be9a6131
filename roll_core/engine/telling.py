"""What the engine tells the watch over the run."""

from __future__ import annotations

from collections.abc import Mapping

from roll_core.engine.parts import Parts
from roll_core.watch import Facts, Probes


def probes_of(parts: Parts) -> Probes:
    """What the watch may ask at any time."""
    executor = parts.executor
    if executor is None:
        return Probes(queue=parts.feed.counts)
    return Probes(health=executor.health, stacks=executor.stacks, queue=parts.feed.counts, break_off=executor.break_off)


def facts_of(parts: Parts, step: int) -> Facts:
    """What is known of a run before its first step."""
    newest = parts.checkpoints.latest()
    facts = Facts(
        run_id=parts.run.run_id,
        name=parts.run.name,
        mode=parts.config.rollout.mode,
        step=step,
        total_steps=parts.config.steps,
        policy_version=step,
        can_scale=hasattr(parts.backend, "scale"),
    )
    return facts if newest is None else facts | Facts(saved_step=newest.step)


def facts_after(step: int, metrics: Mapping[str, float]) -> Facts:
    """What a committed step changes."""
    facts = Facts(step=step, policy_version=step, tokens_per_s=metrics["time/rollout_tokens_per_s"])
    if "rollout/staleness_mean" in metrics:
        facts["staleness_mean"] = metrics["rollout/staleness_mean"]
        facts["staleness_max"] = metrics["rollout/staleness_max"]
    return facts
