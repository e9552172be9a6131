"""`roll plugins check`: the conformance kit over installed components."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from roll_core.cli.context import host_of

if TYPE_CHECKING:
    from roll_core.plugin.component import Component
    from roll_core.plugin.host import Host
    from roll_core.plugin.records import PluginRecord
    from roll_core.testing.kit import CheckResult

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow", "expected_failure": "yellow"}


@dataclass(frozen=True, slots=True)
class Report:
    """How the checks of one component went."""

    kind: str
    plugin: str
    component: str
    results: tuple[CheckResult, ...]

    def of(self, outcome: str) -> list[CheckResult]:
        """The results with this outcome."""
        return [r for r in self.results if r.outcome == outcome]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-able copy."""
        results = [{k: v for k, v in asdict(r).items() if k not in ("kind", "component")} for r in self.results]
        return {"kind": self.kind, "plugin": self.plugin, "component": self.component, "results": results}


@click.command()
@click.argument("names", nargs=-1)
@click.option("--kind", help="Only components of this kind, such as verifiers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Also fail where a package gives no cases, so that checks were skipped.")
@click.pass_context
def check(context: click.Context, names: tuple[str, ...], kind: str | None, as_json: bool, strict: bool) -> None:
    """Run the conformance kit over installed components.

    NAMES are plugins, distributions, components or `owner/component`; all installed ones when left out. Exits with 1
    when a check fails, or a plugin could not be loaded.
    """
    host = host_of(context, enforce=False)
    broken, chosen = _select(host, names, kind)
    reports = [_run(*one, is_quiet=as_json) for one in chosen]
    if as_json:
        document = {"failed_plugins": [r.as_dict() for r in broken], "components": [r.as_dict() for r in reports]}
        click.echo(json.dumps(document, indent=2))
    else:
        _print(reports, broken)
    failed = any(r.of("failed") for r in reports)
    untested = any(result.lacks_cases for report in reports for result in report.results)
    if broken or failed or (strict and untested):
        context.exit(1)


def _select(
    host: Host, names: Sequence[str], kind: str | None
) -> tuple[list[PluginRecord], list[tuple[str, str, Component]]]:
    """The failed plugins and the components that are meant.

    Raises:
        UnknownNameError: a name means nothing that is installed, or there is no such kind.
    """
    from roll_core.errors import unknown_name

    offered = host.components(kind)
    failed = [r for r in host.records.values() if r.state == "failed"]
    if not names:
        return failed, offered
    broken: list[PluginRecord] = []
    chosen: list[tuple[str, str, Component]] = []
    for name in names:
        bad = [r for r in failed if r.is_called(name)]
        found = [one for one in offered if _is_meant(host, name, one)]
        if not bad and not found:
            known = {*host.records, *(component.name for _, _, component in offered)}
            raise unknown_name("plugin or component", name, known)
        broken += [r for r in bad if r not in broken]
        chosen += [one for one in found if one not in chosen]
    return broken, chosen


def _is_meant(host: Host, name: str, offer: tuple[str, str, Component]) -> bool:
    _, plugin, component = offer
    owner, _, bare = name.rpartition("/")
    if owner:
        return component.name == bare and host.records[plugin].is_called(owner)
    return component.name == name or host.records[plugin].is_called(name)


def _run(kind: str, plugin: str, component: Component, *, is_quiet: bool) -> Report:
    """Check one component; what it prints meanwhile is not shown."""
    from rich.console import Console

    from roll_core.testing.kit import check_component

    status = Console(quiet=is_quiet).status(f"{kind}/{component.name}")
    noise = io.StringIO()
    with status, contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
        results = check_component(component, kind)
    return Report(kind, plugin, component.name, tuple(results))


def _print(reports: Sequence[Report], broken: Sequence[PluginRecord]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("component", no_wrap=True)
    table.add_column("plugin", overflow="fold")
    for column in _STYLES:
        table.add_column(column.partition("_")[0], justify="right", no_wrap=True)
    for report in reports:
        counts: Counter[str] = Counter(r.outcome for r in report.results)
        cells = [Text(str(counts[name]), style=style) if counts[name] else Text("-") for name, style in _STYLES.items()]
        table.add_row(Text(f"{report.kind}/{report.component}"), Text(report.plugin), *cells)
    console.print(table)
    for report in reports:
        for line, style in _details(report):
            console.print(Text(line, style=style), soft_wrap=True)
    for record in broken:
        console.print(Text(f"plugin {record.name} failed to load: {record.error}", style="bold red"), soft_wrap=True)
    failures = sum(len(r.of("failed")) for r in reports)
    console.print(f"{len(reports)} components, {failures} failed checks, {len(broken)} failed plugins")


def _details(report: Report) -> list[tuple[str, str]]:
    """A line per failure, and one per reason of a skip."""
    label = f"{report.kind}/{report.component}"
    lines = [(f"FAILED {label} {r.check}: {r.reason}", _STYLES["failed"]) for r in report.of("failed")]
    for outcome, word in (("skipped", "skipped"), ("expected_failure", "expected failure")):
        by_reason: dict[str, list[str]] = {}
        for result in report.of(outcome):
            by_reason.setdefault(result.reason, []).append(result.check)
        lines += [(f"{word} {label} {', '.join(c)}: {reason}", "dim") for reason, c in by_reason.items()]
    return lines
