"""The scoring pool under a step's load: mixed verdicts of real verifiers, with faults among them.

    python benchmarks/scoring_load.py [--verdicts 2000] [--faults 0.01] [--timeout 2]

Draws answers of five domains (math, code, instructions, choice, JSON), right and wrong ones, and injects verifiers that
hang, crash, run out of memory or raise. Prints, per domain, verdicts by status and latencies, then how long the faults
held a worker. The last line is `verdicts/s <n> failures <counted> lost <m>`; lost must be 0.
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

from roll_core.plugin.host import Host
from roll_core.scoring import VerifierPool
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
    verdicts, seconds, replaced = asyncio.run(_judge(pool, rows))
    _report(rows, verdicts)
    failures = sum(verdict.score is None for verdict in verdicts)
    slowest = max(verdict.seconds for verdict in verdicts)
    print(f"slowest verdict {slowest:.2f} s (deadline {options.timeout:g} s), {replaced} workers replaced")
    print(f"verdicts/s {len(rows) / seconds:.0f} failures {failures} lost {len(rows) - len(verdicts)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--faults", type=float, default=0.01, help="share of verdicts that are faults")
    parser.add_argument("--timeout", type=float, default=2.0, help="deadline of a verdict in seconds")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


async def _judge(pool: VerifierPool, rows: list[Row]) -> tuple[list[Verdict], float, int]:
    async with pool:
        await asyncio.gather(*(pool.verify(*row) for row in rows[:20] if row[0] != "faulty"))  # warms the workers up
        start = time.perf_counter()
        verdicts = await asyncio.gather(*(pool.verify(*row) for row in rows))
        return list(verdicts), time.perf_counter() - start, pool.replaced


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
