"""The scoring pool under a step's load: mixed verdicts of real verifiers, with faults among them.

    python benchmarks/scoring_load.py [--verdicts 2000] [--faults 0.01] [--timeout 2] [--hosts 2 [--executor ray]]

Draws answers of five domains (math, code, instructions, choice, JSON), right and wrong ones, and injects verifiers that
hang, crash, run out of memory or raise. Prints, per domain, verdicts by status and latencies, then how long the faults
held a worker. With `--hosts` the same answers are judged again by so many verifier hosts of an executor, which share
the workers, and the verdicts are compared. The last line is `verdicts/s <n> failures <counted> lost <m>`; lost must be
0.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from faulty_verifier import FAULTS, FaultyVerifier

from roll_core.cluster import LocalExecutor, RayExecutor
from roll_core.plugin.host import Host
from roll_core.roles import HostedVerifierPool
from roll_core.scoring import VerdictPool, VerifierPool
from roll_core.types import Verdict

Row = tuple[str, str, Any]
"""(domain, response, reference)."""
USES = {"math": "math", "code": "code", "instructions": "instructions", "choice": "choice", "json": "json_fields"}


def main() -> None:
    """Run the benchmark from the command line."""
    options = _options()
    logging.getLogger("roll_core").setLevel(logging.ERROR)  # every replaced worker is a warning
    rows = list(_rows(options.verdicts, options.faults, random.Random(options.seed)))
    host = Host.discover()
    specs = {domain: host.spec("verifiers", use, {}) for domain, use in USES.items()}
    specs["faulty"] = host.spec("verifiers", FaultyVerifier, {})
    pool = VerifierPool(specs, workers=options.workers, timeout_s=options.timeout, memory_gib=2.0)
    verdicts = _run(pool, rows, options.timeout, compared=[])
    if options.hosts:
        with _executor(options.executor, host) as executor:
            workers = max(options.workers // options.hosts, 1)
            print(f"\n{options.hosts} hosts of {workers} workers each, by the {executor.name} executor:")
            hosted = HostedVerifierPool(
                specs,
                executor,
                hosts=options.hosts,
                workers=workers,
                timeout_s=options.timeout,
                memory_gib=2.0,
                host_cpus=0.5,
            )
            _run(hosted, rows, options.timeout, compared=verdicts)


def _executor(name: str, host: Host) -> LocalExecutor | RayExecutor:
    return LocalExecutor(host) if name == "local" else RayExecutor(host)


def _run(pool: VerdictPool, rows: list[Row], timeout_s: float, compared: list[Verdict]) -> list[Verdict]:
    """Judge all rows, and print how it went and how many verdicts are as before."""
    verdicts, seconds, metrics = asyncio.run(_judge(pool, rows))
    _report(rows, verdicts)
    if compared:
        same = sum(now.status is before.status for now, before in zip(verdicts, compared, strict=True))
        print(f"{same} of {len(rows)} verdicts are the same; {metrics['scoring/hosts_lost']:.0f} hosts lost")
    replaced = int(metrics["scoring/workers_replaced"])
    failures = sum(verdict.score is None for verdict in verdicts)
    slowest = max(verdict.seconds for verdict in verdicts)
    print(f"slowest verdict {slowest:.2f} s (deadline {timeout_s:g} s), {replaced} workers replaced")
    print(f"verdicts/s {len(rows) / seconds:.0f} failures {failures} lost {len(rows) - len(verdicts)}")
    return verdicts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--faults", type=float, default=0.01, help="share of verdicts that are faults")
    parser.add_argument("--timeout", type=float, default=2.0, help="deadline of a verdict in seconds")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--hosts", type=int, default=0, help="verifier hosts beside the pool of this process")
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


async def _judge(pool: VerdictPool, rows: list[Row]) -> tuple[list[Verdict], float, dict[str, float]]:
    await pool.start()
    try:
        await asyncio.gather(*(pool.verify(*row) for row in rows[:20] if row[0] != "faulty"))  # warms the workers up
        start = time.perf_counter()
        verdicts = await asyncio.gather(*(pool.verify(*row) for row in rows))
        return list(verdicts), time.perf_counter() - start, pool.take_metrics()
    finally:
        await pool.close()


def _rows(count: int, faults: float, rng: random.Random) -> Iterator[Row]:
    makers = (_math, _code, _instructions, _choice, _json)
    for _ in range(count):
        if rng.random() < faults:
            yield "faulty", rng.choice(FAULTS), None
        else:
            yield rng.choice(makers)(rng)


def _math(rng: random.Random) -> Row:
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    given = rng.choice([a * b, a * b + 1])
    text = f"We multiply {a} by {b}, step by step. " * 8
    return (
        "math",
        f"{text} So the answer is \\boxed{{{given}}}.",
        rng.choice([str(a * b), f"\\frac{{{2 * a * b}}}{{2}}"]),
    )


def _code(rng: random.Random) -> Row:
    sign = rng.choice("+-")
    cases = [{"stdin": f"{n} {n + 1}\n", "stdout": f"{2 * n + 1}\n"} for n in range(2)]
    program = f"```python\na, b = map(int, input().split())\nprint(a {sign} b)\n```"
    return "code", program, {"type": "stdio", "cases": cases, "compare": "tokens"}


def _instructions(rng: random.Random) -> Row:
    text = " ".join(["word"] * rng.randint(5, 40)) + rng.choice([".", ", indeed."])
    kwargs: list[dict[str, Any]] = [{}, {"relation": "at least", "num_words": 20}]
    return (
        "instructions",
        text,
        {
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": kwargs,
        },
    )


def _choice(rng: random.Random) -> Row:
    letter = rng.choice("ABCD")
    return (
        "choice",
        f"After some thought, the answer is ({rng.choice('ABCD')}).",
        {
            "answer": letter,
            "choices": ["red", "green", "blue", "yellow"],
        },
    )


def _json(rng: random.Random) -> Row:
    age = rng.randint(1, 9)
    return "json", f'Here: {{"name": "Ada", "age": {rng.randint(1, 9)}}}', {"name": "Ada", "age": age}


def _report(rows: list[Row], verdicts: list[Verdict]) -> None:
    for domain in dict.fromkeys(row[0] for row in rows):
        found = [verdict for row, verdict in zip(rows, verdicts, strict=True) if row[0] == domain]
        counts = Counter(
            verdict.status.value if verdict.score is not None else f"{verdict.status.value}/{verdict.detail}"
            for verdict in found
        )
        seconds = sorted(verdict.seconds for verdict in found)
        p50, p99 = statistics.median(seconds), seconds[int(0.99 * (len(seconds) - 1))]
        listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        print(f"{domain:<13} {len(found):>5}  p50 {p50 * 1e3:8.2f} ms  p99 {p99 * 1e3:8.2f} ms  {listed}")


if __name__ == "__main__":
    main()
