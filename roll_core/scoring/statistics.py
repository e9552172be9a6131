"""What a step reports about scores, rewards and verdicts, per domain and over all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from roll_core.types import Rollout, RolloutGroup, Status


def reward_statistics(groups: Iterable[RolloutGroup]) -> dict[str, float]:
    """Means and counts over the rollouts of `groups` (greedy baselines, and samples stopped early, apart).

    * `reward/score[/<domain>]`: mean raw score of scored rollouts; `reward/total[/<domain>]`: mean weighted sum.
    * `reward/<component>/<domain>`: mean unweighted value over the rollouts that have it.
    * `scoring/unscored_rate[/<domain>]`, `scoring/status/<status>/<domain>` (counts of all statuses).
    * `time/verdict_s/<domain>`: mean seconds of a verdict.

    Means over nothing are left out.
    """
    by_domain = _by_domain(groups)
    metrics: dict[str, float] = {}
    for domain, rollouts in by_domain.items():
        metrics |= _summary(rollouts, f"/{domain}")
        metrics |= _components(rollouts, domain)
        metrics |= _verdicts(rollouts, domain)
    if everything := [rollout for rollouts in by_domain.values() for rollout in rollouts]:
        metrics |= _summary(everything, "")
    return metrics


def unscored_alarms(groups: Iterable[RolloutGroup], alarm_rate: float) -> list[str]:
    """One sentence per domain in which more than `alarm_rate` of the rollouts stay without a score."""
    alarms = []
    for domain, rollouts in _by_domain(groups).items():
        unscored = [rollout for rollout in rollouts if not rollout.is_scored]
        if len(unscored) <= alarm_rate * len(rollouts):
            continue
        causes = Counter(_cause(rollout) for rollout in unscored)
        listed = ", ".join(f"{cause} {count}" for cause, count in causes.most_common(4))
        reasons = Counter(r.verdict.reason for r in unscored if r.verdict is not None and r.verdict.reason)
        example = f"; most often: {reasons.most_common(1)[0][0]}" if reasons else ""
        share = len(unscored) / len(rollouts)
        alarms.append(
            f"domain '{domain}': {len(unscored)} of {len(rollouts)} rollouts ({share:.1%}) have no score, more than "
            f"scoring.alarm_rate = {alarm_rate:.1%} ({listed}{example})"
        )
    return alarms


def _by_domain(groups: Iterable[RolloutGroup]) -> dict[str, list[Rollout]]:
    by_domain: dict[str, list[Rollout]] = defaultdict(list)
    for group in groups:
        by_domain[group.prompt.domain].extend(r for r in group.rollouts if r.finish_reason != "abort")
    return {domain: rollouts for domain, rollouts in sorted(by_domain.items()) if rollouts}


def _summary(rollouts: Sequence[Rollout], suffix: str) -> dict[str, float]:
    scored = [rollout for rollout in rollouts if rollout.is_scored]
    metrics = {f"scoring/unscored_rate{suffix}": 1.0 - len(scored) / len(rollouts)}
    if scored:
        metrics[f"reward/score{suffix}"] = _mean([rollout.score or 0.0 for rollout in scored])
        metrics[f"reward/total{suffix}"] = _mean([rollout.reward for rollout in scored])
    return metrics


def _components(rollouts: Sequence[Rollout], domain: str) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for record in rollout.rewards:
            values[record.component].append(record.value)
    return {f"reward/{component}/{domain}": _mean(found) for component, found in values.items()}


def _verdicts(rollouts: Sequence[Rollout], domain: str) -> dict[str, float]:
    verdicts = [rollout.verdict for rollout in rollouts if rollout.verdict is not None]
    counts = Counter(verdict.status for verdict in verdicts)
    metrics = {f"scoring/status/{status.value}/{domain}": float(counts[status]) for status in Status}
    if verdicts:
        metrics[f"time/verdict_s/{domain}"] = _mean([verdict.seconds for verdict in verdicts])
    return metrics


def _cause(rollout: Rollout) -> str:
    verdict = rollout.verdict
    if verdict is None:
        return "never judged"
    return f"{verdict.status.value}/{verdict.detail}" if verdict.detail else verdict.status.value


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
