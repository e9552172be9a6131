"""Does asynchronous training learn as well as synchronous? The same task, seeds and steps in both modes.

    python benchmarks/staleness_curve.py --folder runs/staleness [--staleness 2] [--seeds 0 1 2]
    python benchmarks/staleness_curve.py --folder /tmp/try --config tiny.yaml --set steps=4   # to try it out

Trains `--config` (the quickstart: SmolLM2-135M on two kinds of task, 30 steps) once in each mode for each seed; `--set`
overrides any key, in every run. Asynchronous runs correct old tokens by truncated importance sampling unless
`--correction none`. Held-out answers are sampled with the weights of their step, so the curves are comparable step by
step; training scores are of answers that are up to `--staleness` versions older.

Writes `<folder>/staleness.png` and one run folder each. Prints final held-out accuracies (means over the domains), what
a curve is worth (its mean over the evaluations after the start), and the paired differences async - sync with their
95 % intervals (Student's t over the seeds). The last line is
`difference final <d> [<low>, <high>] curve <d> [<low>, <high>]`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import roll_core as roll
from roll_core.config.load import load_config
from roll_core.report.plot import read_metrics, series

MODES = ("sync", "async")
QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart.yaml"
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What one run came to, over the steps."""

    held_out: dict[int, float]
    """Mean held-out accuracy of the domains, by step."""
    training: tuple[list[int], list[float]]
    """Steps, and the mean training score of the domains."""
    staleness: float
    """Mean over the steps."""
    seconds: float

    @property
    def final(self) -> float:
        """Held-out accuracy of the trained policy."""
        return self.held_out[max(self.held_out)]

    @property
    def worth(self) -> float:
        """Mean held-out accuracy after the start."""
        return statistics.fmean(value for step, value in self.held_out.items() if step)


def main() -> None:
    """Run the comparison from the command line."""
    options = _options()
    curves: dict[tuple[str, int], Curve] = {}
    for seed in options.seeds:
        for mode in MODES:
            curve = curves[mode, seed] = _train(options, mode, seed)
            print(
                f"{mode:<6} seed {seed}: final accuracy {curve.final:.3f}, curve {curve.worth:.3f}, staleness "
                f"{curve.staleness:.2f}, {curve.seconds:.0f} s of training",
                flush=True,
            )
    print(f"plot: {_plot(curves, options)}")
    final = _difference([curves["async", seed].final - curves["sync", seed].final for seed in options.seeds])
    worth = _difference([curves["async", seed].worth - curves["sync", seed].worth for seed in options.seeds])
    print(f"difference final {final} curve {worth}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where runs and plot are kept")
    parser.add_argument("--config", type=Path, default=QUICKSTART)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--correction", default="token_tis", help="algorithm.correction.kind of the asynchronous runs")
    parser.add_argument("--evaluations", type=int, default=6, help="evaluations after the start")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], help="config overrides, key=value")
    return parser.parse_args()


def _train(options: argparse.Namespace, mode: str, seed: int) -> Curve:
    steps = load_config(options.config, options.overrides).config.steps
    own = [f"name={mode}-{seed}", f"folder={options.folder / f'{mode}-{seed}'}", f"seed={seed}", f"rollout.mode={mode}"]
    own += [f"eval.every={max(1, steps // options.evaluations)}", "checkpoint.every=0", "checkpoint.at_end=false"]
    if mode == "async":
        own += [f"rollout.max_staleness={options.staleness}", f"algorithm.correction.kind={options.correction}"]
    run = roll.train(options.config, *options.overrides, *own, "trackers=[jsonl]", overwrite=True)
    rows = read_metrics(run.folder)
    behind = [row["rollout/staleness_mean"] for row in rows if "rollout/staleness_mean" in row]
    held_out = {
        step: statistics.fmean(result.sampled.value for result in results.values())
        for step, results in run.result.evaluations.items()
    }
    return Curve(held_out, _training(rows), statistics.fmean(behind), run.result.train_seconds)


def _training(rows: Sequence[dict[str, Any]]) -> tuple[list[int], list[float]]:
    prefix = "reward/score/"
    domains = sorted({key for row in rows for key in row if key.startswith(prefix)})
    by_step: dict[int, list[float]] = {}
    for domain in domains:
        for step, value in zip(*series(rows, domain), strict=True):
            by_step.setdefault(step, []).append(value)
    return list(by_step), [statistics.fmean(values) for values in by_step.values()]


def _difference(paired: Sequence[float]) -> str:
    """Mean and 95 % interval of paired differences; one seed has no interval."""
    mean = statistics.fmean(paired)
    if len(paired) < 2:
        return f"{mean:+.3f} [?, ?]"
    half = T_95.get(len(paired) - 1, 1.96) * statistics.stdev(paired) / len(paired) ** 0.5
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def _plot(curves: dict[tuple[str, int], Curve], options: argparse.Namespace) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    held_out, training = figure.subplots(1, 2)
    for index, mode in enumerate(MODES):
        name = mode if mode == "sync" else f"async, max_staleness {options.staleness}"
        for n, seed in enumerate(options.seeds):
            curve, label = curves[mode, seed], name if n == 0 else None
            style = {"color": f"C{index}", "alpha": 0.7, "label": label}
            held_out.plot(list(curve.held_out), list(curve.held_out.values()), marker="o", **style)
            training.plot(*curve.training, **style)
    for axes, title in ((held_out, "held-out accuracy"), (training, "training score")):
        axes.set(xlabel="step", ylabel=title, ylim=(-0.02, 1.02))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left")
    path: Path = options.folder / "staleness.png"
    figure.savefig(path, dpi=110)
    return path


if __name__ == "__main__":
    main()
