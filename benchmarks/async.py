"""Throughput of synchronous, one-step and asynchronous rollouts on a long-tailed workload, side by side in one run.

    python benchmarks/async.py [--devices 4 8 16] [--staleness 4] [--steps 40] [--model DIR] [--costs COSTS] [--no-real]

**Replayed.** The schedulers are the engine's own, the router of several generators the vLLM plugin's. Devices are
replayed on a virtual clock: each takes as long for a decode step (by its number of live requests), for training a token
and for new weights as this machine was measured to take, with the local engines on `--model` (a randomly initialised
model of SmolLM2-135M's shapes without one). `--costs` replays other durations (see `parse_costs`).

**Workload.** Log-normal response lengths whose 99th percentile is ten times the median, as Laminar (arXiv:2510.12633)
reports of reasoning runs; with 256 answers a step the longest is some 15 times the median (ROLL Flash,
arXiv:2510.11345: more than 20 times). `sync` then waits for rollouts over 70 % of the time where there are 16 answers
to a device, which is what RollPacker (arXiv:2509.21009) and ROLL Flash report of synchronous systems.

**Layouts.** For a fixed number of devices, every mode gets the division of labour that is best for it. `sync` may also
let all devices do both in turn: that costs it nothing here, and training gets faster with every device, both of which
favour `sync`.

Prints, per number of devices and mode: trained tokens a second, the ratio to sync, how long trainers and generators
idled, live requests of a busy generator, staleness, and the mean length of trained answers beside that of all drawn
ones (less means that long answers were lost). Then a real run of the three modes on this machine's cores, without a
target. The last line, `ratio one_step <x> async <y>`, is of the replay on the largest number of devices; async waits
for groups at the bound, so none is older than `--staleness` versions or thrown away.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from async_replay.costs import Costs, measure, parse_costs
from async_replay.real import real_rates
from async_replay.replay import Layout, Mode, OnStale, Outcome, Setting, simulate
from async_replay.workload import P99_OVER_MEDIAN, SIGMA, Lengths

RUNS: tuple[tuple[Mode, OnStale], ...] = (
    ("sync", "wait"),
    ("one_step", "wait"),
    ("async", "wait"),
    ("async", "correct"),
    ("async", "drop"),
)
SWEEP_STEPS = 12
"""Steps of the runs that only choose a layout."""


def main() -> None:
    """Run the benchmark from the command line."""
    options = _options()
    costs = parse_costs(options.costs) if options.costs else measure(options.model)
    print(costs.describe())
    print(
        f"workload: {options.prompts} prompts x {options.group_size} answers a step, {options.steps} steps; lengths "
        f"log-normal, median {options.median:.0f}, 99th percentile {P99_OVER_MEDIAN:.0f} times that, cut at "
        f"{options.max_tokens}"
    )
    outcomes: list[Outcome] = []
    for devices in options.devices:
        setting = _setting(options, devices, costs)
        outcomes = [_best(setting, mode, on_stale) for mode, on_stale in RUNS]
        print(f"\n{devices} devices, {options.prompts * options.group_size / devices:.0f} answers a step to each")
        print(_table(outcomes, options.staleness))
    if options.real:
        print(_real(options))
    sync, one_step, ahead = (outcome.tokens_per_s for outcome in outcomes[:3])
    print(f"ratio one_step {one_step / sync:.2f} async {ahead / sync:.2f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--staleness", type=int, default=4, help="max_staleness of async")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--median", type=float, default=150.0, help="median response length in tokens")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--model", type=Path, help="Hugging Face folder to measure with")
    parser.add_argument("--costs", help="replay these durations instead of measuring")
    parser.add_argument("--no-real", dest="real", action="store_false", help="leave the real run out")
    parser.add_argument("--real-steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _setting(options: argparse.Namespace, devices: int, costs: Costs) -> Setting:
    return Setting(
        devices=devices,
        prompts=options.prompts,
        group_size=options.group_size,
        steps=options.steps,
        staleness=options.staleness,
        lengths=Lengths(options.median, SIGMA, options.max_tokens, options.seed),
        costs=costs,
    )


def _best(setting: Setting, mode: Mode, on_stale: OnStale) -> Outcome:
    """The whole run with the layout that was fastest in a short one."""
    layouts = [Layout(setting.devices - trainers, trainers) for trainers in range(1, setting.devices)]
    if mode == "sync":
        layouts.append(Layout(setting.devices, setting.devices, is_shared=True))
    short = setting.shortened(min(SWEEP_STEPS, setting.steps))
    best = max(layouts, key=lambda layout: simulate(short, mode, layout, on_stale).tokens_per_s)
    return simulate(setting, mode, best, on_stale)


def _table(outcomes: list[Outcome], staleness: int) -> str:
    head = (
        f"{'mode':<26}{'best layout':<24}{'tokens/s':>9}{'ratio':>7}{'idle: train':>13}{'generate':>10}{'waiting':>9}"
        f"{'live':>6}{'staleness: mean':>17}{'max':>5}{'stale groups':>14}{'length: trained':>17}{'drawn':>7}"
    )
    lines = [head]
    for one in outcomes:
        name = one.mode if one.mode != "async" else f"async {staleness}, on_stale {one.on_stale}"
        lines.append(
            f"{name:<26}{one.layout!s:<24}{one.tokens_per_s:>9.0f}{one.tokens_per_s / outcomes[0].tokens_per_s:>7.2f}"
            f"{one.trainer_idle:>13.1%}{one.generator_idle:>10.1%}{one.rollout_share:>9.1%}{one.mean_live:>6.1f}"
            f"{one.staleness:>17.2f}{one.oldest:>5}{one.stale:>14}{one.trained_length:>17.1f}{one.drawn_length:>7.1f}"
        )
    return "\n".join(lines)


def _real(options: argparse.Namespace) -> str:
    rates = real_rates(
        steps=options.real_steps, staleness=options.staleness, prompts=8, group_size=8, seed=options.seed
    )
    ratios = ", ".join(f"{mode} {rate:.0f} ({rate / rates['sync']:.2f})" for mode, rate in rates.items())
    return f"\nreal run on this machine, both roles on the same cores, trained tokens a second (ratio): {ratios}\n"


if __name__ == "__main__":
    main()
