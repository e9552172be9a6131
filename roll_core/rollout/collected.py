"""What a step has collected, and why it could not collect more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from roll_core.types import Rollout, RolloutGroup

STALE = "stale"
"""Why a group was dropped that was too old to be trained."""


@dataclass(slots=True)
class StepRollouts:
    """Every group of a step: the admitted ones in ticket order, and the dropped ones with their reasons."""

    admitted: list[RolloutGroup] = field(default_factory=list)
    dropped: list[tuple[RolloutGroup, str]] = field(default_factory=list)
    drawn: int = 0
    rounds: int = 0
    stale: int = 0
    """Admitted groups that are older than `max_staleness`."""

    @property
    def groups(self) -> list[RolloutGroup]:
        """Admitted and dropped groups in ticket order."""
        return sorted([*self.admitted, *(g for g, _ in self.dropped)], key=lambda g: g.ticket.id)


def why_starved(result: StepRollouts, count: int) -> str:
    """What was drawn, why it was dropped, how hard each domain is, what broke, and what to change."""
    reasons = Counter(reason for _, reason in result.dropped)
    why = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()) or "none dropped"
    rollouts: dict[str, list[Rollout]] = {}
    for group in result.groups:
        rollouts.setdefault(group.ticket.domain, []).extend(group.rollouts)
    domains = "; ".join(_domain_state(name, own) for name, own in sorted(rollouts.items()))
    return (
        f"drew {result.drawn} prompts for {count} groups, {len(result.admitted)} admitted ({why}): "
        f"{domains or 'no domain has prompts left'}. Change the data or the filters, raise batch.group_size, or raise "
        "rollout.max_draws."
    )


def _domain_state(name: str, rollouts: Sequence[Rollout]) -> str:
    scores = [r.score for r in rollouts if r.score is not None]
    failures = Counter(f"{r.verdict.detail}: {r.verdict.reason}" for r in rollouts if r.verdict and not r.is_scored)
    broken = ""
    if failures:
        cause, times = failures.most_common(1)[0]
        broken = f", {times} rollouts without a score because of '{cause}'"
    if not scores:
        return f"domain '{name}' has no scored rollout{broken}"
    rate = sum(scores) / len(scores)
    level = "is too hard" if rate < 0.05 else "is too easy" if rate > 0.95 else "has a usable pass rate"
    return f"domain '{name}' {level} (pass rate {rate:.2f}){broken}"


def first_leaf(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside nested exception groups: what the person running this wants to read."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
