"""Pure functions over log-probs, rewards, values and masks; the only place that aggregates.

`arrays` (numpy, driver side): aggregation and correction weights, mismatch metrics, overlong shaping, the KL
controller. `returns` (numpy): whitening, discounted returns, GAE. `tensors` (torch, train side): masked means, KL
estimators, entropy, value loss. Importing this package does not import torch; the first use of a torch function does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from roll_core.numerics.arrays import (
    KLController,
    aggregation_weights,
    correction_weights,
    effective_sample_size,
    kl_reward,
    mismatch_metrics,
    overlong_penalty,
)
from roll_core.numerics.returns import discounted_returns, generalised_advantages, spread, whiten_array

if TYPE_CHECKING:
    from roll_core.numerics.tensors import (
        LOG_RATIO_LIMIT,
        entropy,
        kl_estimate,
        log_ratio,
        masked_mean,
        masked_sum,
        value_loss,
        whiten,
    )

_TORCH = frozenset(
    {"LOG_RATIO_LIMIT", "entropy", "kl_estimate", "log_ratio", "masked_mean", "masked_sum", "value_loss", "whiten"}
)

__all__ = [
    "LOG_RATIO_LIMIT",
    "KLController",
    "aggregation_weights",
    "correction_weights",
    "discounted_returns",
    "effective_sample_size",
    "entropy",
    "generalised_advantages",
    "kl_estimate",
    "kl_reward",
    "log_ratio",
    "masked_mean",
    "masked_sum",
    "mismatch_metrics",
    "overlong_penalty",
    "spread",
    "value_loss",
    "whiten",
    "whiten_array",
]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(importlib.import_module("roll_core.numerics.tensors"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
