"""The checks of every kind; importing this package registers them."""

from __future__ import annotations

from roll_core.testing.checks import (
    advantages,
    commands,
    common,
    environments,
    filters,
    mixers,
    models,
    policy_losses,
    rewards,
    rollout_backends,
    sources,
    trackers,
    train_strategies,
    verifiers,
)

__all__ = [
    "advantages",
    "commands",
    "common",
    "environments",
    "filters",
    "mixers",
    "models",
    "policy_losses",
    "rewards",
    "rollout_backends",
    "sources",
    "trackers",
    "train_strategies",
    "verifiers",
]
