"""`roll plugins rates`: error rates of installed verifiers on the labelled answers that they ship."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roll_core.cli.context import host_of
from roll_core.errors import DataError, PluginError

if TYPE_CHECKING:
    from rich.console import Console

    from roll_core.plugin.host import Host
    from roll_core.testing.error_rates import Rate
    from roll_core.testing.golden import Judged


@click.command()
@click.argument("names", nargs=-1)
@click.option("--errors", is_flag=True, help="List every answer that was judged against its label.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--readme",
    "readmes",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Fill the blocks '<!-- rates:NAME -->' of this file (repeatable); without NAMES, all that it names.",
)
@click.pass_context
def rates(
    context: click.Context, names: tuple[str, ...], errors: bool, as_json: bool, readmes: tuple[Path, ...]
) -> None:
    """Measure error rates of verifiers on their golden tables.

    NAMES are verifiers; all installed ones that ship a table when left out. A wrong answer that is accepted costs more
    than a right one that is refused: the policy is trained towards it.
    """
    host = host_of(context, enforce=False)
    wanted = names or _named_in(readmes)
    tables = {name: _judge(host, name) for name in (wanted or _with_tables(host))}
    if as_json:
        click.echo(json.dumps({name: _as_dict(judged) for name, judged in tables.items()}, indent=2))
    else:
        from rich.console import Console

        console = Console()
        for name, judged in tables.items():
            _print(console, name, judged, errors)
    for path in readmes:
        _write(path, tables)


def _named_in(readmes: Sequence[Path]) -> list[str]:
    from roll_core.testing.error_rates import BLOCK

    return [m["component"] for path in readmes for m in BLOCK.finditer(path.read_text(encoding="utf-8"))]


def _with_tables(host: Host) -> list[str]:
    from roll_core.testing.cases import VerifierCases, find_cases

    offered = [(f"{owner}/{c.name}", find_cases("verifiers", c)) for _, owner, c in host.components("verifiers")]
    return [name for name, cases in offered if isinstance(cases, VerifierCases) and cases.golden is not None]


def _judge(host: Host, name: str) -> list[Judged]:
    """Judge the golden table of one verifier.

    Raises:
        UnknownNameError: there is no such verifier.
        PluginError: it ships no table, or a broken one.
    """
    from rich.console import Console
    from rich.progress import track

    from roll_core.testing.cases import VerifierCases, find_cases
    from roll_core.testing.golden import judge_rows, read_golden

    component = host.component("verifiers", name)
    cases = find_cases("verifiers", component)
    rows = read_golden(component, cases) if isinstance(cases, VerifierCases) else []
    if not rows or not isinstance(cases, VerifierCases):
        raise PluginError(f"verifier '{name}' ships no golden table (conformance.py: VerifierCases(golden=...))")
    console = Console(stderr=True)
    bar = track(
        judge_rows(component, cases, rows),
        name,
        len(rows),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    return list(bar)


def _as_dict(judged: Sequence[Judged]) -> dict[str, Any]:
    from roll_core.testing.error_rates import rates as measure

    kinds = [
        {
            "kind": one.kind,
            "false_positives": _rate(one.false_positives),
            "false_negatives": _rate(one.false_negatives),
            "unscored": one.unscored,
        }
        for one in measure(judged)
    ]
    return {"n": len(judged), "kinds": kinds, "errors": [j.row.id for j in judged if j.is_error and not j.row.disputed]}


def _rate(rate: Rate) -> dict[str, Any]:
    measured = (
        {"share": rate.share, "interval_95": rate.interval} if rate.total else {"share": None, "interval_95": None}
    )
    return {"errors": rate.errors, "total": rate.total, **measured}


def _print(console: Console, name: str, judged: Sequence[Judged], errors: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from roll_core.testing.error_rates import rates as measure

    table = Table(title=name, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("kind", "wrong, yet accepted", "right, yet refused", "no score"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for one in measure(judged):
        table.add_row(one.kind, str(one.false_positives), str(one.false_negatives), str(one.unscored))
    console.print(table)
    for finding in judged if errors else ():
        if finding.is_error:
            row = finding.row
            mark = " (disputed)" if row.disputed else ""
            what = f"expected {row.expected}, {finding.said}: {row.response!r:.80} for {row.reference!r:.80}"
            console.print(Text(f"{row.id}{mark}: {what}"), soft_wrap=True)


def _write(path: Path, tables: dict[str, list[Judged]]) -> None:
    from roll_core.testing.error_rates import BLOCK, fill_blocks

    text = path.read_text(encoding="utf-8")
    if not any(match["component"] in tables for match in BLOCK.finditer(text)):
        raise DataError(f"{path} holds no block '<!-- rates:NAME -->' ... '<!-- /rates -->' for {', '.join(tables)}")
    path.write_text(fill_blocks(text, tables), encoding="utf-8")
    click.echo(f"wrote {path}", err=True)
