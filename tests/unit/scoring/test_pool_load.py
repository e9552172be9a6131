"""A step of 2,000 mixed verdicts from five domains, with hangs, crashes and memory hogs among them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from fake_verifiers import Spec

from roll_core.plugin.host import Host
from roll_core.scoring import VerifierPool
from roll_core.types import Status

DEADLINE_S = 0.5
MARGIN_S = 3.0
TOTAL = 2_000
EVERY = 100
"""One verdict in so many is a fault."""
FAULTS = ("hang", "spin", "exit", "segfault", "memory", "raise", "nan", "child")
WHOLE = {"math": ("\\boxed{4}", "4"), "json": ('{"a": 1}', {"a": 1}), "words": ("one two three", {"max_words": 5})}


def work() -> list[tuple[str, str, object]]:
    rng = random.Random(0)
    rows: list[tuple[str, str, object]] = []
    for index in range(TOTAL):
        if index % EVERY == 50:
            rows.append(("faulty", FAULTS[index // EVERY % len(FAULTS)], None))
        elif index % EVERY == 51:
            rows.append(("slow", rng.choice(["hang", "raise"]), None))
        else:
            key = rng.choice(["math", "json", "words", "faulty", "slow"])
            rows.append((key, *WHOLE[key]) if key in WHOLE else (key, "right", None))
    return rows


def test_every_rollout_of_a_large_step_ends_with_a_verdict_or_a_counted_failure() -> None:
    host = Host.discover()
    names = {"math": "math", "json": "json_fields", "words": "word_limit"}
    specs = {key: host.spec("verifiers", name, {}) for key, name in names.items()}
    pool = VerifierPool({**specs, "faulty": Spec("Faulty"), "slow": Spec("Slow")}, workers=2, timeout_s=DEADLINE_S)
    rows = work()

    async def body():
        async with pool:
            return await asyncio.gather(*(pool.verify(key, text, reference) for key, text, reference in rows))

    verdicts = asyncio.run(asyncio.wait_for(body(), 120))

    assert len(verdicts) == TOTAL
    faults = [v for (_, text, _), v in zip(rows, verdicts, strict=True) if text in (*FAULTS, "hang", "raise")]
    whole = [v for (_, text, _), v in zip(rows, verdicts, strict=True) if text not in (*FAULTS, "hang", "raise")]
    assert len(faults) == 2 * TOTAL // EVERY
    assert {v.status for v in faults} == {Status.ERROR}
    assert {v.status for v in whole} == {Status.CORRECT}
    assert {"timeout", "crashed", "raised"} <= Counter(v.detail for v in faults).keys()
    assert max(v.seconds for v in verdicts) < DEADLINE_S + MARGIN_S
    assert pool.replaced == sum(
        text in ("hang", "spin", "exit", "segfault", "child") for k, text, _ in rows if k == "faulty"
    )
