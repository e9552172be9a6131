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
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._total = run.total_steps
        console = Console()
        self._console = console if console.is_terminal else Console(width=self._width)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[line]}"),
            console=self._console,
        )
        self._task = self._progress.add_task(run.name, total=self._total, completed=run.resumed_from or 0, line="")
        where = f", going on from step {run.resumed_from}" if run.resumed_from else ""
        self._console.print(f"[bold]{run.name}[/bold]: {self._total} steps, in {run.folder}{where}")
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self._render)
            self._live.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move on to `step`."""
        if self._console is None or self._progress is None or self._task is None:
            return
        self._metrics.update(metrics)
        if not any(k.startswith("reward/") for k in metrics):
            self._console.print(f"step {step} held-out  {held_out_line(metrics)}")
            return
        self._progress.update(self._task, completed=step, line=step_line(metrics))
        if self._live is None:
            self._console.print(
                f"step {step}/{self._total}  {step_line(metrics)}  {stage_line(metrics)}", soft_wrap=True
            )

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """`roll rollouts` shows them."""

    def finish(self, status: str) -> None:
        """Leave the last state of the display on screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._console is not None:
            self._console.print(f"[bold]{status}[/bold]")
            self._console = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for title in ("domain", "score", "reward", "tokens", "target", "trained"):
            table.add_column(title, justify="left" if title == "domain" else "right")
        for name in domains_of(self._metrics):
            row = (
                f"reward/score/{name}", f"reward/total/{name}", f"rollout/response_tokens_mean/{name}",
                f"mixer/target/{name}", f"mixer/trained_tokens/{name}",
            )  # fmt: skip
            table.add_row(name, *(_number(self._metrics.get(key)) for key in row))
        parts: list[RenderableType] = [self._progress] if self._progress is not None else []
        return Group(*parts, table, stage_line(self._metrics))


def domains_of(metrics: Mapping[str, float]) -> list[str]:
    """Domain names that metrics speak of, in order."""
    prefix = "reward/score/"
    return [key.removeprefix(prefix) for key in metrics if key.startswith(prefix)]


def step_line(metrics: Mapping[str, float]) -> str:
    """Scores per domain, answer length, speed: the numbers people watch, in one line."""
    scores = " ".join(f"{d} {_number(metrics.get(f'reward/score/{d}'))}" for d in domains_of(metrics))
    return (
        f"score {scores}  tokens {_number(metrics.get('rollout/response_tokens_mean'), 1)}  "
        f"{_number(metrics.get('time/step_s'), 1)} s/step  {_number(metrics.get('time/samples_per_s'), 1)} samples/s"
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
