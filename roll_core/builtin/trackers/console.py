"""Live progress in the terminal: a bar, the numbers people watch, and a table of domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from roll_core.contracts import RunInfo
from roll_core.types import RolloutGroup

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress import Progress, TaskID

_STAGES = ("rollout", "columns", "credit", "update", "sync")
_TABLE = {
    "score": ("reward/score", 2),
    "reward": ("reward/total", 2),
    "held-out": ("eval/accuracy", 3),
    "tokens": ("rollout/response_tokens_mean", 1),
    "target": ("mixer/target", 2),
    "trained": ("mixer/trained_tokens", 2),
}
"""Columns of the table of domains: where each number comes from, and its digits."""


class ConsoleTracker:
    """In a terminal a live display; elsewhere (a file, a pipe) one line a step.

    Args:
        width: columns to use when the output is no terminal.
    """

    def __init__(self, *, width: int = 120) -> None:
        self._width = width
        self._console: Console | None = None
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._metrics: dict[str, float] = {}

    def start(self, run: RunInfo) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.live import Live
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._total = run.total_steps
        console = Console()
        self._console = console if console.is_terminal else Console(width=self._width)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[line]}"),
            console=self._console,
        )
        self._task = self._progress.add_task(run.name, total=self._total, completed=run.resumed_from or 0, line="")
        where = f", going on from step {run.resumed_from}" if run.resumed_from else ""
        self._console.print(f"[bold]{run.name}[/bold]: {self._total} steps, in {escape(str(run.folder))}{where}")
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self._render)
            self._live.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move on to `step`."""
        if self._console is None or self._progress is None or self._task is None:
            return
        self._metrics = {**self._metrics, **metrics}  # not in place: the display reads it from its own thread
        if "time/step_s" in metrics:
            self._progress.update(self._task, completed=step, line=speed_line(metrics))
            if self._live is None:
                line = f"step {step}/{self._total}  {step_line(metrics)}  {stage_line(metrics)}"
                self._console.print(line, soft_wrap=True, markup=False, highlight=False)
        if held_out := held_out_line(metrics):
            self._console.print(f"step {step} held-out  {held_out}", soft_wrap=True, markup=False, highlight=False)

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """`roll rollouts` shows them."""

    def finish(self, status: str) -> None:
        """Leave the last state of the display on screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._console is not None:
            self._console.print(status, style="bold green" if status == "finished" else "bold red")
            self._console = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        metrics = self._metrics
        table = Table(box=None, pad_edge=False)
        for title in ("domain", *_TABLE):
            table.add_column(title, justify="left" if title == "domain" else "right")
        for name in domains_of(metrics):
            table.add_row(name, *(_number(metrics.get(f"{prefix}/{name}"), n) for prefix, n in _TABLE.values()))
        parts: list[RenderableType] = [self._progress] if self._progress is not None else []
        return Group(*parts, table, Text(stage_line(metrics)))


def domains_of(metrics: Mapping[str, float]) -> list[str]:
    """Domain names that metrics speak of, in order."""
    prefix = "reward/score/"
    return [key.removeprefix(prefix) for key in metrics if key.startswith(prefix)]


def step_line(metrics: Mapping[str, float]) -> str:
    """Scores per domain, answer length, speed: the numbers people watch, in one line."""
    scores = " ".join(f"{d} {_number(metrics.get(f'reward/score/{d}'))}" for d in domains_of(metrics))
    length = _number(metrics.get("rollout/response_tokens_mean"), 1)
    return f"score {scores or '-'}  tokens {length}  {speed_line(metrics)}"


def speed_line(metrics: Mapping[str, float]) -> str:
    """Seconds a step, samples and tokens a second."""
    return (
        f"{_number(metrics.get('time/step_s'), 1)} s/step  {_number(metrics.get('time/samples_per_s'), 1)} samples/s  "
        f"{_number(metrics.get('time/rollout_tokens_per_s'), 0)} tokens/s"
    )


def stage_line(metrics: Mapping[str, float]) -> str:
    """Seconds per stage."""
    shown = [(s, metrics[f"time/{s}_s"]) for s in _STAGES if metrics.get(f"time/{s}_s", 0.0) >= 0.05]
    return "  ".join(f"{stage} {value:.1f}s" for stage, value in shown)


def held_out_line(metrics: Mapping[str, float]) -> str:
    """Held-out accuracies of an evaluation."""
    prefix = "eval/accuracy/"
    return "  ".join(f"{k.removeprefix(prefix)} {_number(v, 3)}" for k, v in metrics.items() if k.startswith(prefix))


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
