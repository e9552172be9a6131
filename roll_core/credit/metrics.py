"""Numbers about a batch that credit reports, over all domains and per domain (`<key>/<domain>`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from roll_core.credit.algorithm import DomainAlgorithm
from roll_core.credit.estimate import tokens_of
from roll_core.numerics import mismatch_metrics
from roll_core.types import AnyArray, Batch, BoolArray

Measure = Callable[[BoolArray], dict[str, float]]


def batch_metrics(
    batch: Batch, algorithms: Mapping[str, DomainAlgorithm], names: Sequence[str], kl: Mapping[str, AnyArray]
) -> dict[str, float]:
    """What is known of a batch before its update.

    Args:
        batch: with its columns.
        algorithms: of the domains.
        names: domains that have rollouts.
        kl: by domain, the KL at sampled tokens where it went into the reward.
    """
    metrics: dict[str, float] = {"rollout/singleton_groups": float(singleton_groups(batch))}
    if "greedy_rewards" in batch.columns:
        metrics["rollout/missing_baselines"] = float((~np.isfinite(batch.columns["greedy_rewards"])).sum())
    metrics |= _per_domain(batch, names, lambda mask: _advantage_metrics(batch, mask))
    if "old_logprobs" in batch.columns:
        old, sampled = batch.columns["old_logprobs"], batch.rollout_logprobs
        metrics |= _per_domain(
            batch, names, lambda m: {f"policy/{k}": v for k, v in mismatch_metrics(old, sampled, m).items()}
        )
    if any(algorithms[n].config.correction.kind != "none" for n in names):
        metrics |= _per_domain(batch, names, lambda mask: _correction_metrics(batch, mask))
    if "returns" in batch.columns and "values" in batch.columns:
        critics = [n for n in names if algorithms[n].has_critic]
        metrics |= _critic_metrics(batch, batch.loss_mask & tokens_of(batch, critics))
    return metrics | _kl_metrics(kl)


def singleton_groups(batch: Batch) -> int:
    """Groups with a single scored rollout: a baseline from the group gives them advantage 0."""
    return int((np.unique(batch.rollout_group, return_counts=True)[1] == 1).sum())


def _per_domain(batch: Batch, names: Sequence[str], measure: Measure) -> dict[str, float]:
    metrics = measure(batch.loss_mask)
    if len(names) > 1:
        for name in names:
            own = measure(batch.loss_mask & tokens_of(batch, [name]))
            metrics |= {f"{key}/{name}": value for key, value in own.items()}
    return metrics


def _advantage_metrics(batch: Batch, mask: BoolArray) -> dict[str, float]:
    values = batch.columns["advantages"][mask].astype(np.float64)
    if not len(values):
        return {}
    return {
        "policy/advantage_mean": float(values.mean()),
        "policy/advantage_std": float(values.std()),
        "policy/advantage_max": float(np.abs(values).max()),
        "policy/advantage_zero_share": float((values == 0).mean()),
    }


def _correction_metrics(batch: Batch, mask: BoolArray) -> dict[str, float]:
    values = batch.columns["correction"][mask].astype(np.float64)
    if not len(values):
        return {}
    return {"policy/correction_mean": float(values.mean()), "policy/correction_rejected": float((values == 0).mean())}


def _critic_metrics(batch: Batch, mask: BoolArray) -> dict[str, float]:
    returns = batch.columns["returns"][mask].astype(np.float64)
    values = batch.columns["values"][mask].astype(np.float64)
    if not len(returns):
        return {}
    metrics = {"train/value_mean": float(values.mean()), "train/return_mean": float(returns.mean())}
    if returns.var() > 0:
        metrics["train/value_explained_variance"] = 1.0 - float((returns - values).var() / returns.var())
    return metrics


def _kl_metrics(kl: Mapping[str, AnyArray]) -> dict[str, float]:
    counted = {name: values for name, values in kl.items() if len(values)}
    metrics = {f"policy/kl/{name}": float(np.mean(values, dtype=np.float64)) for name, values in counted.items()}
    if counted:
        metrics["policy/kl"] = float(np.concatenate(list(counted.values())).mean(dtype=np.float64))
    return metrics
