"""Held-out accuracy before and after, as data and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.engine import RunResult
from roll_core.evaluation import DomainResult, Proportion
from roll_core.files import replace_text
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
            "before": _value(before[name].sampled),
            "after": _value(after[name].sampled),
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
    means = {f"mean_{end}": _mean([d[end] for d in domains.values()]) for end in ("before", "after")}
    return {"domains": domains, **means, **run}


def write_summary(summary: Mapping[str, Any], folder: Path) -> Path:
    """Write `summary.json` into the run's folder."""
    path = folder / SUMMARY_FILE
    replace_text(path, json.dumps(summary, indent=2, allow_nan=False) + "\n")
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
        factor = f" ({after / before:.2f}x)" if before and after is not None else ""
        table.add_row("mean", "", _maybe(before), f"{_maybe(after)}{factor}")
    unscored = {name: row["unscored"] for name, row in summary["domains"].items() if row["unscored"]}
    if unscored:
        table.caption = "without a score, left out: " + ", ".join(f"{name} {n}" for name, n in unscored.items())
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
            _with_interval(_value(r.sampled), _interval(r.sampled)),
            _with_interval(_value(r.greedy), _interval(r.greedy)) if r.greedy else "-",
            *(_maybe(r.pass_at.get(k)) for k in ks),
            f"{r.mean_tokens:.1f}",
            f"{r.truncated:.2f}",
            str(r.unscored),
        )
    return table


def _interval(p: Proportion) -> list[float] | None:
    return [p.low, p.high] if p.n else None


def _value(p: Proportion | None) -> float | None:
    """The share; None without a single scored rollout."""
    return p.value if p is not None and p.n else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if values and len(known) == len(values) else None


def _maybe(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return "-"
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
