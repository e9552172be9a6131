"""The scheduler of the mode that a config names."""

from __future__ import annotations

from roll_core.config.schema import RunConfig
from roll_core.rollout.ahead import AheadScheduler
from roll_core.rollout.feed import Feed
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.one_step import OneStepScheduler
from roll_core.rollout.scheduler import RolloutScheduler
from roll_core.rooms import Drawing


def make_feed(config: RunConfig, groups: GroupRunner, draw: Drawing, *, max_draws: int) -> Feed:
    """Build the scheduler for `config.rollout.mode`.

    Args:
        config: the run's.
        groups: rolls out one group.
        draw: prompts.
        max_draws: groups that one step may draw (or, in async mode, drop) before it gives up.
    """
    if config.rollout.mode == "async":
        return AheadScheduler(
            groups,
            draw,
            prompts=config.batch.prompts,
            steps=config.steps,
            max_staleness=config.rollout.max_staleness,
            on_stale=config.rollout.on_stale,
            max_draws=max_draws,
        )
    scheduler = RolloutScheduler(groups, draw, max_draws)
    return scheduler if config.rollout.mode == "sync" else OneStepScheduler(scheduler, draw, config.batch.prompts)
