"""`roll rollouts RUN`: look at what the policy wrote and how it was judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roll_core.errors import DataError
from roll_core.types import Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Row = dict[str, Any]

SHORT_PROMPT, SHORT_RESPONSE = 400, 1200
"""Characters of a prompt and of a response that are shown without `--full`."""
_SHOWN = 10
_TOKENS = ("token_ids", "response_mask", "rollout_logprobs")
_JSON_COLUMNS = ("reference", "seconds")
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
"""Control characters to their pictures: what a policy writes must not steer the terminal."""
_COLOURS = {Status.CORRECT: "green", Status.INCORRECT: "red", Status.INVALID: "red"}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--step", type=int, help="One step; the last one when left out.")
@click.option("--domain", help="One domain.")
@click.option("--status", type=click.Choice([str(s) for s in Status]), help="One verdict status.")
@click.option("--prompt", "prompt_id", help="One prompt, by id.")
@click.option("--contains", help="Responses that contain this text.")
@click.option("--min-score", type=float, help="Scores of at least this.")
@click.option("--max-score", type=float, help="Scores of at most this.")
@click.option("-n", "limit", type=click.IntRange(min=0), help=f"How many; {_SHOWN} on screen, all with --json.")
@click.option("--full", is_flag=True, help="Show long texts whole; with --json, add token ids and log-probs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--pager/--no-pager", default=False, help="Page through the output.")
def rollouts(
    *,
    run: Path,
    step: int | None,
    domain: str | None,
    status: str | None,
    prompt_id: str | None,
    contains: str | None,
    min_score: float | None,
    max_score: float | None,
    limit: int | None,
    full: bool,
    as_json: bool,
    pager: bool,
) -> None:
    """Show rollouts of RUN (a run's folder) with prompt, response, verdict and reward parts."""
    rows = read_rollouts(run, step)
    wanted = {"domain": domain, "status": status, "prompt_id": prompt_id}
    for key in ("domain", "prompt_id"):
        _check_known(key, wanted[key], rows)
    chosen = [
        row
        for row in rows
        if all(value is None or row[key] == value for key, value in wanted.items())
        and (contains is None or contains in row["response"])
        and _is_between(row["score"], min_score, max_score)
    ]
    if as_json:
        for row in chosen[:limit]:
            click.echo(json.dumps(json_row(row, full=full), ensure_ascii=False))
        return
    _show(chosen, _SHOWN if limit is None else limit, full=full, pager=pager)


def read_rollouts(run: Path, step: int | None) -> list[Row]:
    """Rows of one step's parquet file, by domain, prompt and sample.

    Args:
        run: the run's folder.
        step: which step; None takes the last one.

    Raises:
        DataError: the run has no rollouts, or none of that step.
    """
    from roll_core.builtin.trackers.parquet import step_of

    by_step = {step_of(file): file for file in (run / "rollouts").glob("step-*.parquet")}
    if not by_step:
        raise DataError(f"no rollouts in {run}; is it a run's folder, and was the 'parquet' tracker on?")
    chosen = max(by_step) if step is None else step
    if chosen not in by_step:
        raise DataError(f"no rollouts of step {chosen} in {run}; there are steps {min(by_step)} to {max(by_step)}")
    import pyarrow.parquet as pq

    rows: list[Row] = pq.read_table(by_step[chosen]).to_pylist()
    return sorted(rows, key=lambda row: (row["domain"], row["ticket"], row["sample"]))


def json_row(row: Mapping[str, Any], *, full: bool) -> Row:
    """A row for `--json`: nested columns decoded, per-token ones only in full."""
    kept = {key: value for key, value in row.items() if full or key not in _TOKENS}
    return kept | {key: json.loads(row[key]) for key in _JSON_COLUMNS}


def visible(text: str, limit: int | None = None) -> str:
    """The text with control characters made visible.

    Args:
        text: anything.
        limit: characters; of a longer text only the first and last part are kept. None keeps it whole.
    """
    if limit is not None and len(text) > limit:
        head, tail = limit * 2 // 3, limit // 3
        text = f"{text[:head]} … {len(text) - head - tail} more characters … {text[-tail:]}"
    return text.translate(_CONTROLS)


def _check_known(key: str, value: str | None, rows: Sequence[Row]) -> None:
    known = sorted({row[key] for row in rows})
    if value is not None and rows and value not in known:
        shown = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        raise DataError(f"no rollouts with {key} '{value}' at step {rows[0]['step']}; there are: {shown}")


def _is_between(score: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return score is not None and (low is None or score >= low) and (high is None or score <= high)


def _show(rows: Sequence[Row], limit: int, *, full: bool, pager: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not pager:
        _print(console, rows, limit, full=full)
        return
    with console.capture() as capture:
        _print(console, rows, limit, full=full)
    click.echo_via_pager(capture.get(), color=console.is_terminal)


def _print(console: Console, rows: Sequence[Row], limit: int, *, full: bool) -> None:
    """Prompts once, the answers to each below it."""
    from rich.padding import Padding
    from rich.text import Text

    before: tuple[str, int] | None = None
    for row in rows[:limit]:
        if before != (row["domain"], row["ticket"]):
            before = (row["domain"], row["ticket"])
            title = f"step {row['step']} · {row['domain']} · {row['prompt_id']}"
            console.rule(Text(title, "bold"), align="left")
            console.print(Text(visible(row["prompt"], None if full else SHORT_PROMPT), "dim"))
            console.print(Text(f"reference: {visible(row['reference'], None if full else SHORT_PROMPT)}", "dim"))
            console.print()
        console.print(_verdict_line(row))
        response = visible(row["response"], None if full else SHORT_RESPONSE)
        text = Text(response or "(empty)", "" if response else "dim")
        console.print(Padding(text, (0, 0, 0, 2), expand=False))
        console.print()
    console.print(Text(_totals(rows, min(limit, len(rows))), "dim"))


def _verdict_line(row: Mapping[str, Any]) -> Text:
    from rich.text import Text

    status = row["status"] or "not judged"
    line = Text(f"#{row['sample']} ", "bold").append(status, f"bold {_COLOURS.get(row['status'], 'yellow')}")
    facts = []
    if row["score"] is not None:
        facts.append(f"score {row['score']:.2f}")
    if row["reward"] is not None:
        parts = " + ".join(f"{r['weight']:g} x {r['value']:.3g} {r['component']}" for r in row["rewards"])
        facts.append(f"reward {row['reward']:.3f}" + (f" = {parts}" if parts else ""))
    if row["answer"] is not None:
        facts.append(f"answer {visible(row['answer'], 80)!r}")
    facts.append(f"{row['response_tokens']} tokens, {row['finish_reason']}")
    facts += [visible(row[key]) for key in ("detail", "reason") if row[key]]
    return line.append(" · " + " · ".join(facts))


def _totals(rows: Sequence[Row], shown: int) -> str:
    statuses = Counter(row["status"] or "not judged" for row in rows)
    scores = [row["score"] for row in rows if row["score"] is not None]
    parts = [f"{shown} of {len(rows)} shown", ", ".join(f"{n} {status}" for status, n in statuses.most_common())]
    if scores:
        parts.append(f"mean score {sum(scores) / len(scores):.3f}")
    return " · ".join(part for part in parts if part)
