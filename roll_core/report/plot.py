"""The picture of a run: training scores per domain, held-out accuracy, and the mixture that was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PLOT_FILE = "plot.png"
_SCORE, _EVAL, _TRAINED = "reward/score/", "eval/accuracy/", "mixer/trained_tokens/"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Rows of a run's `metrics.jsonl`; empty when there is none."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def save_plot(rows: Sequence[Mapping[str, Any]], folder: Path, *, title: str) -> Path | None:
    """Draw the run into `<folder>/plot.png`.

    Args:
        rows: metrics by step, as the jsonl tracker wrote them.
        folder: the run's folder.
        title: printed above the picture.

    Returns:
        The file, or None when there is nothing to draw.
    """
    domains = sorted({k.removeprefix(_SCORE) for row in rows for k in row if k.startswith(_SCORE)})
    if not domains:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    learning, mixture = figure.subplots(1, 2)
    for index, domain in enumerate(domains):
        colour = f"C{index}"
        steps, values = series(rows, _SCORE + domain)
        learning.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
        learning.plot(steps, smoothed(values), color=colour, linewidth=2, label=f"{domain}, training")
        at, held_out = series(rows, _EVAL + domain)
        learning.plot(at, held_out, color=colour, marker="o", linestyle="none", label=f"{domain}, held out")
        mixture.plot(*series(rows, _TRAINED + domain), color=colour, label=f"{domain}, trained tokens")
        mixture.plot(*series(rows, f"mixer/target/{domain}"), color=colour, linestyle=":", label=f"{domain}, target")
    for axes, name in ((learning, "score"), (mixture, "share of the step")):
        axes.set(xlabel="step", ylabel=name, ylim=(-0.02, 1.02))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left")
    path = folder / PLOT_FILE
    figure.savefig(path, dpi=110)
    return path


def series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric, rows without it left out."""
    found = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return [s for s, _ in found], [v for _, v in found]


def smoothed(values: Sequence[float], weight: float = 0.6) -> list[float]:
    """Exponential moving average that starts unbiased."""
    out: list[float] = []
    total = norm = 0.0
    for value in values:
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        out.append(total / norm)
    return out
