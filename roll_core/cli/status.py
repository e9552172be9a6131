"""`roll status RUN`: what a run is at, who waits for whom, whether it lives, and what to type if not."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roll_core.watch import BETWEEN, Liveness, RunStatus, assess, read_status

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_GIB = 2**30
_REFRESH_S = 1.0
_HANG_LINES = 12
"""Lines of the last hang report that are shown; its summary stands first."""
_COLOURS = {Liveness.ALIVE: "green", Liveness.FINISHED: "green", Liveness.INTERRUPTED: "yellow"}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Show it anew every second, until the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def status(*, run: Path, watch: bool, as_json: bool) -> None:
    """Show what the run in the folder RUN is at: stage, queue, workers and what they wait for."""
    if watch and as_json:
        raise click.UsageError("--watch draws on the screen and --json writes for programs; choose one")
    found = read_status(run)
    if as_json:
        click.echo(json.dumps(asdict(found) | {"liveness": str(assess(found)), "age_s": round(found.age_s(), 1)}))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if watch:
        _follow(console, run)
    else:
        console.print(render(run, found))


def _follow(console: Any, run: Path) -> None:
    """Draw anew until the run has ended; Ctrl-C ends the drawing, not the run."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            found = read_status(run)
            live.update(render(run, found), refresh=True)
            if assess(found) not in (Liveness.ALIVE, Liveness.SILENT):
                return
            time.sleep(_REFRESH_S)


def render(run: Path, found: RunStatus, now: float | None = None) -> Group:
    """A run's status for people.

    Args:
        run: its folder.
        found: its status.
        now: Unix time; the clock's by default.
    """
    from rich.console import Group
    from rich.text import Text

    now = time.time() if now is None else now
    liveness = assess(found, now=now)
    head = Text.assemble(
        (found.name or run.name, "bold"), f" ({found.run_id or 'no id yet'}) is ",
        (str(liveness), f"bold {_COLOURS.get(liveness, 'red')}"),
        f" · pid {found.pid} on {found.host} · last sign of life {_span(found.age_s(now))} ago",
    )  # fmt: skip
    until = now if liveness in (Liveness.ALIVE, Liveness.SILENT) else found.heartbeat
    parts: list[RenderableType] = [head, _facts(found, until)]
    if found.workers:
        parts.append(_workers(found, until))
    if found.waits:
        parts.append(_waits(found, until))
    if found.error:
        parts.append(Text(_visible(found.error), "red"))
    if found.hang:
        parts.append(_hang(run, found.hang))
    advice = _advice(run, found, liveness, now)
    if advice:
        parts.append(Text(advice, "bold"))
    return Group(*parts)


def _facts(found: RunStatus, until: float) -> Table:
    """What is known of the run as a whole; `until` is when it was last alive."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    memory = _memory(found.rss_bytes)
    rows = {
        "step": f"{found.step} of {found.total_steps}, {found.mode or 'mode not known yet'}",
        "stage": f"{found.stage}{_of_step(found)} for {_span(until - found.stage_since)} (bound "
        f"{_span(found.stage_limit_s)})",
        "event loop": f"has not moved for {_span(found.loop_lag_s)}" if found.loop_lag_s >= 5 else "",
        "queue": ", ".join(f"{count} {name}" for name, count in found.queue.items()),
        "weights": "" if found.policy_version is None else f"version {found.policy_version}" + _staleness(found),
        "speed": "" if found.tokens_per_s is None else f"{found.tokens_per_s:,.0f} sampled tokens/s over the last step",
        "checkpoint": "none yet" if found.saved_step is None else f"step {found.saved_step}",
        "restarts": str(found.restarts) if found.restarts else "",
        "replicas": "" if found.replicas is None else f"{found.replicas} asked for",
        "devices": "; ".join(f"{role}: {', '.join(names)}" for role, names in found.devices.items()),
        "driver": f"up for {_span(until - found.started)}" + (f", {memory}" if memory else ""),
    }  # fmt: skip
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    return table


def _workers(found: RunStatus, until: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    columns = ("worker", "machine", "pid", "devices", "memory", "is at")
    age = "" if found.workers_asked is None else f" (state {_span(until - found.workers_asked)} old)"
    table = Table(*columns, title=f"workers{age}", title_justify="left")
    for worker in found.workers:
        table.add_row(
            f"{worker['role']}[{worker['index']}]", worker["node"], str(worker["pid"]),
            ", ".join(map(str, worker.get("devices", ()))), _memory(worker["rss_bytes"]), Text(*_doing(worker)),
        )  # fmt: skip
    return table


def _doing(worker: dict[str, Any]) -> tuple[str, str]:
    """What a worker does or waits for, and the colour of it."""
    if not worker["is_alive"]:
        return "lost", "bold red"
    if worker["busy_s"] is None:
        return "idle: waits for the driver", "dim"
    others = f", {worker['queued']} unanswered" if worker["queued"] > 1 else ""
    return f"{_visible(worker['busy_with'])} for {_span(worker['busy_s'])}{others}", ""


def _waits(found: RunStatus, until: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("who waits", "for whom", "for what", "since", "bound", title="waits", title_justify="left")
    for wait in found.waits:
        texts = (Text(_visible(wait[key])) for key in ("who", "whom", "what"))
        table.add_row(*texts, _span(until - wait["since"]), _span(wait["limit_s"]))
    return table


def _hang(run: Path, hang: str) -> RenderableType:
    """Where the last hang report is, and how it begins."""
    from rich.text import Text

    path = run / hang
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return Text(f"last hang: {path} ({error.strerror})", "yellow")
    begin = [f"  {_visible(line)}" for line in lines[:_HANG_LINES] if line]
    return Text("\n".join([f"last hang: {path}", *begin]), "yellow")


def _advice(run: Path, found: RunStatus, liveness: Liveness, now: float) -> str:
    """What to type; empty when there is nothing to do."""
    resume = f"roll resume {run}"
    if liveness is Liveness.SILENT:
        return (
            f"its process is there and has written nothing for {_span(found.age_s(now))}: it is stopped (go on with: "
            f"kill -CONT {found.pid}), or stuck in native code (end it with: kill -KILL {found.pid}; then: {resume})"
        )
    if liveness is Liveness.UNREACHABLE:
        return f"look for pid {found.pid} on {found.host}; if it is gone, go on with: {resume}"
    if not liveness.can_resume:
        return ""
    if found.saved_step is None:
        return "it has no checkpoint: start it again with `roll train CONFIG --overwrite`"
    why = "its process has ended without a word (killed, or out of memory); " if liveness is Liveness.DEAD else ""
    return f"{why}go on from step {found.saved_step} with: {resume}"


def _of_step(found: RunStatus) -> str:
    return f" {'after' if found.stage == BETWEEN else 'of'} step {found.stage_step}"


def _staleness(found: RunStatus) -> str:
    if not found.staleness_max:
        return ""
    return f", the last step's tokens {found.staleness_mean:.2f} behind on average, {found.staleness_max:.0f} at most"


def _memory(size: int | None) -> str:
    return "" if size is None else f"{size / _GIB:.2f} GiB"


def _span(seconds: float) -> str:
    """Seconds for people."""
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _visible(text: str) -> str:
    from roll_core.cli.rollouts import visible

    return visible(text)
