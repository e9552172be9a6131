"""`roll verify NAME`: judge answers from a file, or a single one, without a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from roll_core.cli.context import host_of
from roll_core.errors import ConfigError, DataError, near_match

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from roll_core.plugin.host import Host
    from roll_core.scoring import VerifierPool
    from roll_core.verification import Answer, Opinion, Summary

_SHOWN_DISPUTES = 20


@click.command()
@click.argument("name")
@click.argument("options", nargs=-1)
@click.option("--input", "source", help="Answers: a .jsonl, .json, .csv or .parquet file, or a set on the hub.")
@click.option("--response", help="Column of the responses [response]; without --input, the response itself.")
@click.option("--reference", help="Column of the references [reference]; without --input, the reference itself.")
@click.option("--prompt", help="Column of the prompts, for verifiers that read them.")
@click.option("--pass", "passed", multiple=True, metavar="ARG=COLUMN", help="Hand a column to the verifier as ARG.")
@click.option("--against", metavar="NAME", help="A second verifier; answers that only one accepts are listed.")
@click.option("--against-option", "against_options", multiple=True, metavar="KEY=VALUE", help="Option of the second.")
@click.option("--output", type=click.Path(path_type=Path), help="Write verdicts here; the screen gets the summary.")
@click.option("--workers", type=click.IntRange(min=0), help="Verifier processes; one per core when left out.")
@click.option("--timeout", "timeout_s", type=float, default=30.0, show_default=True, help="Seconds a verdict may take.")
@click.option("-n", "limit", type=click.IntRange(min=1), help="Only the first so many answers.")
@click.pass_context
def verify(
    context: click.Context,
    *,
    name: str,
    options: tuple[str, ...],
    source: str | None,
    response: str | None,
    reference: str | None,
    prompt: str | None,
    passed: tuple[str, ...],
    against: str | None,
    against_options: tuple[str, ...],
    output: Path | None,
    workers: int | None,
    timeout_s: float,
    limit: int | None,
) -> None:
    """Judge answers with the verifier NAME; OPTIONS are key=value pairs of the verifier, like form=answer.

    Verdicts are JSON, one a line, in the order of the answers. The summary counts statuses and shows the slowest
    answers and, with --against, those on which two verifiers disagree.
    """
    from roll_core.scoring import VerifierPool
    from roll_core.verification import FIRST, SECOND, Summary

    host = host_of(context)
    specs = {FIRST: host.spec("verifiers", name, _options(options), place="")}
    if against is not None:
        specs[SECOND] = host.spec("verifiers", against, _options(against_options), place="")
    elif against_options:
        raise click.UsageError("--against-option needs --against")
    columns = _Columns(response, reference, prompt, _pairs(passed))
    answers, total = (_one(columns), 1) if source is None else _read(host, source, columns, limit)
    pool = VerifierPool(specs, workers=_cores() if workers is None else workers, timeout_s=timeout_s, concurrency=64)
    summary = Summary()
    with contextlib.ExitStack() as stack:
        sink: IO[str] = sys.stdout
        if output is not None:
            sink = stack.enter_context(output.open("w", encoding="utf-8"))
        wall_s = asyncio.run(_stream(pool, answers, total, sink, summary, has_second=against is not None))
    if source is not None:
        _show(summary, wall_s, names=(name, against), is_stdout=output is not None)


class _Columns:
    """Which columns hold what."""

    def __init__(
        self, response: str | None, reference: str | None, prompt: str | None, passed: Mapping[str, str]
    ) -> None:
        self.response, self.reference, self.prompt, self.passed = response, reference, prompt, passed

    def answer(self, row: Mapping[str, Any], index: int) -> Answer:
        """One row as an answer.

        Raises:
            DataError: a column is missing, or the response is no text.
        """
        from roll_core.types import Prompt
        from roll_core.verification import Answer

        response = self._value(row, self.response or "response", index)
        if not isinstance(response, str):
            raise DataError(f"row {index}: the response must be text, not {type(response).__name__}")
        reference = self._value(row, self.reference or "reference", index)
        asked = str(self._value(row, self.prompt, index)) if self.prompt else None
        prompt = None if asked is None else Prompt(id=str(index), domain="verify", text=asked, reference=reference)
        options = {argument: self._value(row, column, index) for argument, column in self.passed.items()}
        return Answer(index, response, reference, prompt, options)

    def _value(self, row: Mapping[str, Any], column: str, index: int) -> Any:
        if column not in row:
            known = ", ".join(row) or "none"
            raise DataError(f"row {index} has no column '{column}'{near_match(column, row) or ';'} columns: {known}")
        return row[column]


def _one(columns: _Columns) -> Iterator[Answer]:
    """The answer given on the command line.

    Raises:
        click.UsageError: it is not whole.
    """
    from roll_core.verification import Answer

    if columns.response is None or columns.passed or columns.prompt:
        raise click.UsageError("give --input FILE, or a single answer as --response TEXT --reference TEXT")
    return iter([Answer(0, columns.response, columns.reference)])


def _read(host: Host, source: str, columns: _Columns, limit: int | None) -> tuple[Iterator[Answer], int]:
    rows = host.build("sources", "dataset", {"path": source}, place="--input")
    count = len(rows) if limit is None else min(limit, len(rows))
    return (columns.answer(rows[index], index) for index in range(count)), count


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and key and value):
            raise click.UsageError(f"'{text}' is not of the form NAME=VALUE")
        pairs[key] = value
    return pairs


def _options(texts: Sequence[str]) -> dict[str, Any]:
    """Options as YAML values, `form=answer` or `limits={time_s: 2}`.

    Raises:
        ConfigError: a value is no YAML.
    """
    import yaml

    options = {}
    for key, value in _pairs(texts).items():
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"option {key}={value} is not valid YAML: {error}") from error
    return options


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _stream(
    pool: VerifierPool, answers: Iterator[Answer], total: int, sink: IO[str], summary: Summary, *, has_second: bool
) -> float:
    """Judge, write and count; returns the seconds taken, the start of the workers apart."""
    from roll_core.verification import judge_answers

    async with pool:
        started = time.perf_counter()
        with _progress() as bar:
            task = bar.add_task("verifying", total=total, counts="")
            async for opinion in judge_answers(pool, answers, has_second=has_second):
                line = json.dumps(_line(opinion), ensure_ascii=False) + "\n"
                sink.write(line.encode("utf-8", "backslashreplace").decode("utf-8"))  # a lone surrogate stays an escape
                summary.add(opinion)
                _advance(bar, task, summary)
        return time.perf_counter() - started


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _advance(bar: Progress, task: TaskID, summary: Summary) -> None:
    unscored = summary.total - summary.scored
    text = f"correct {summary.statuses['correct']}  without score {unscored}"
    bar.update(task, advance=1, counts=text + (f"  disputed {len(summary.disputed)}" if summary.disputed else ""))


def _line(opinion: Opinion) -> dict[str, Any]:
    line: dict[str, Any] = {"index": opinion.answer.index, **_fields(opinion.verdict)}
    if opinion.second is not None:
        line["second"] = _fields(opinion.second)
        line["disputed"] = opinion.is_disputed
    return line


def _fields(verdict: Any) -> dict[str, Any]:
    return {
        "verifier": verdict.verifier,
        "version": verdict.version,
        "status": verdict.status.value,
        "score": verdict.score,
        "answer": verdict.answer,
        "detail": verdict.detail,
        "reason": verdict.reason,
        "seconds": round(verdict.seconds, 6),
    }


def _show(summary: Summary, wall_s: float, *, names: tuple[str, str | None], is_stdout: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=not is_stdout)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (("status", "left"), ("detail", "left"), ("answers", "right"), ("share", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]  # a literal in a tuple is a plain str
    for (status, detail), count in sorted(summary.details.items(), key=lambda item: (item[0][0], -item[1])):
        table.add_row(status, Text(detail[:60] or "-"), str(count), f"{count / summary.total:.1%}")
    console.print(table)
    mean = "none" if summary.mean_score is None else f"{summary.mean_score:.3f}"
    console.print(
        f"{summary.total} answers, {summary.scored} scored, mean score {mean}; {summary.total / wall_s:.0f} a second, "
        f"{summary.seconds / summary.total * 1e3:.2f} ms each in the verifier"
    )
    slow = ", ".join(f"#{o.answer.index} {o.verdict.seconds:.3f} s" for o in summary.slowest)
    console.print(f"slowest: {slow}")
    if names[1] is None:
        return
    console.print(f"{len(summary.disputed)} of {summary.compared} answers are judged otherwise by {names[1]}")
    for one in summary.disputed[:_SHOWN_DISPUTES]:
        ours, theirs = one.verdict, one.second
        said = f"{names[0]} {ours.status.value}, {names[1]} {theirs.status.value if theirs else ''}"
        text = (
            f"#{one.answer.index} {said}: {ours.answer or one.answer.response!r:.60} for {one.answer.reference!r:.60}"
        )
        console.print(Text(text), soft_wrap=True)
