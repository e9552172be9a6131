"""Held-out accuracy before and after, as data and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.engine import RunResult
from roll_core.evaluation import DomainResult, Proportion
from roll_core.types import Prompt

if TYPE_CHECKING:
    from rich.table import Table

SUMMARY_FILE = "summary.json"


def constant_answer_rate(prompts: Sequence[Prompt]) -> float:
    """Accuracy of always giving the most frequent reference: what a policy that collapsed would reach.

    Meaningful for verifiers that compare with the reference; 1.0 when all prompts share one reference.
    """
    if not prompts:
        return 0.0
    counts = Counter(json.dumps(p.reference, sort_keys=True, default=str) for p in prompts)
    return counts.most_common(1)[0][1] / len(prompts)


def summarise(result: RunResult, held_out: Mapping[str, Sequence[Prompt]]) -> dict[str, Any]:
    """Before and after of every domain that was evaluated at both ends; sampled accuracy unless named greedy."""
    run = {"train_seconds": result.train_seconds, "steps": result.steps, "status": result.status}
    if len(result.evaluations) < 2:
        return {"domains": {}, **run}
    first, last = min(result.evaluations), max(result.evaluations)
    before, after = result.evaluations[first], result.evaluations[last]
    domains: dict[str, dict[str, Any]] = {
        name: {
            "before": before[name].sampled.value,
            "after": after[name].sampled.value,
            "n": after[name].sampled.n,
            "before_interval": _interval(before[name].sampled),
            "after_interval": _interval(after[name].sampled),
            "greedy_before": _value(before[name].greedy),
            "greedy_after": _value(after[name].greedy),
            "constant_answer": constant_answer_rate(held_out.get(name, ())),
            "unscored": after[name].unscored,
        }
        for name in after
        if name in before
    }
    means = {f"mean_{end}": sum(d[end] for d in domains.values()) / len(domains) for end in ("before", "after")}
    return {"domains": domains, **means, **run}


def write_summary(summary: Mapping[str, Any], folder: Path) -> Path:
    """Write `summary.json` into the run's folder."""
    path = folder / SUMMARY_FILE
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return path


def summary_table(summary: Mapping[str, Any]) -> Table:
    """The table a run ends with.

    `greedy` is greedy accuracy before > after; `constant` what always giving the most frequent reference would reach.
    """
    from rich.table import Table

    table = Table(title="held-out accuracy, sampled as in training (95 % interval)")
    table.add_column("domain", no_wrap=True)
    for title in ("n", "before", "after", "greedy", "constant"):
        table.add_column(title, justify="right")
    for name, row in summary["domains"].items():
        table.add_row(
            name,
            str(row["n"]),
            _with_interval(row["before"], row["before_interval"]),
            _with_interval(row["after"], row["after_interval"]),
            f"{_maybe(row['greedy_before'], 2)} > {_maybe(row['greedy_after'], 2)}",
            _maybe(row["constant_answer"], 2),
        )
    if summary["domains"]:
        table.add_section()
        before, after = summary["mean_before"], summary["mean_after"]
        factor = f" ({after / before:.2f}x)" if before else ""
        table.add_row("mean", "", f"{before:.3f}", f"{after:.3f}{factor}")
    return table


def evaluation_table(results: Mapping[str, DomainResult], title: str) -> Table:
    """One evaluation: accuracy, greedy accuracy and pass@k by domain."""
    from rich.table import Table

    ks = sorted({k for r in results.values() for k in r.pass_at})
    table = Table(title=title)
    table.add_column("domain", no_wrap=True)
    for column in ("n", "sampled", "greedy", *(f"pass@{k}" for k in ks), "tokens", "truncated", "unscored"):
        table.add_column(column, justify="right")
    for name, r in results.items():
        table.add_row(
            name,
            str(r.sampled.n),
            _with_interval(r.sampled.value, _interval(r.sampled)),
            _with_interval(r.greedy.value, _interval(r.greedy)) if r.greedy else "-",
            *(_maybe(r.pass_at.get(k)) for k in ks),
            f"{r.mean_tokens:.1f}",
            f"{r.truncated:.2f}",
            str(r.unscored),
        )
    return table


def _interval(p: Proportion) -> list[float]:
    return [p.low, p.high]


def _value(p: Proportion | None) -> float | None:
    return p.value if p is not None else None


def _maybe(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _with_interval(value: float, interval: Sequence[float]) -> str:
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
