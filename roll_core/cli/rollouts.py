"""`roll rollouts RUN`: look at what the policy wrote and how it was judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roll_core.errors import DataError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--step", type=int, help="One step; the last one when left out.")
@click.option("--domain", help="One domain.")
@click.option("--status", help="One verdict status: correct, incorrect, invalid, undecided, error, abstain.")
@click.option("--prompt", "prompt_id", help="One prompt, by id.")
@click.option("--contains", help="Responses that contain this text.")
@click.option("-n", "limit", default=10, show_default=True, help="How many to show.")
@click.option("--pager/--no-pager", default=False, help="Page through the output.")
def rollouts(
    run: Path,
    step: int | None,
    domain: str | None,
    status: str | None,
    prompt_id: str | None,
    contains: str | None,
    limit: int,
    pager: bool,
) -> None:
    """Show rollouts of RUN (a run's folder) with prompt, response, verdict and reward parts."""
    from rich.console import Console

    console = Console()
    rows = read_rollouts(run, step)
    wanted = {"domain": domain, "status": status, "prompt_id": prompt_id}
    chosen = [
        row
        for row in rows
        if all(value is None or row[key] == value for key, value in wanted.items())
        and (contains is None or contains in row["response"])
    ]
    if pager:
        with console.pager(styles=True):
            _show(console, chosen[:limit], len(chosen))
    else:
        _show(console, chosen[:limit], len(chosen))


def read_rollouts(run: Path, step: int | None) -> list[dict[str, Any]]:
    """Rows of one step's parquet file.

    Raises:
        DataError: the run has no rollouts, or none of that step.
    """
    import pyarrow.parquet as pq

    files = sorted((run / "rollouts").glob("step-*.parquet"))
    if not files:
        raise DataError(f"no rollouts in {run}; is it a run's folder, and was the 'parquet' tracker on?")
    by_step = {int(f.stem.removeprefix("step-")): f for f in files}
    chosen = max(by_step) if step is None else step
    if chosen not in by_step:
        raise DataError(f"no rollouts of step {chosen} in {run}; there are steps {min(by_step)} to {max(by_step)}")
    rows: list[dict[str, Any]] = pq.read_table(by_step[chosen]).to_pylist()
    return rows


def _show(console: Any, rows: list[dict[str, Any]], total: int) -> None:
    from rich.markup import escape

    for row in rows:
        score = "-" if row["score"] is None else f"{row['score']:.2f}"
        reward = "-" if row["reward"] is None else f"{row['reward']:.3f}"
        parts = ", ".join(f"{r['component']} {r['weight']:g} x {r['value']:.3g}" for r in row["rewards"])
        why = " ".join(filter(None, (row["detail"], row["reason"])))
        console.rule(
            f"step {row['step']} · {escape(row['domain'])} · {escape(row['prompt_id'])} · sample {row['sample']}"
        )
        console.print(f"[dim]{escape(row['prompt'])}[/dim]")
        console.print(escape(row["response"]))
        console.print(
            f"[bold]{row['status']}[/bold] score {score} · reward {reward} ({escape(parts)}) · reference "
            f"{escape(row['reference'])} · {row['response_tokens']} tokens, {row['finish_reason']} · {escape(why)}"
        )
    console.print(f"[dim]{len(rows)} of {total}[/dim]")
