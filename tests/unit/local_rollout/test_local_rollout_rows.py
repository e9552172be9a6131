"""Rows that are computed together: their number is rounded, and no row depends on the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.linear import packing_works, round_rows

PROMPTS = [tuple(range(3, 3 + n)) for n in (4, 9, 1, 17)]


@pytest.mark.parametrize("octave", range(3, 12))
def test_four_numbers_an_octave_and_at_most_a_quarter_more(octave: int) -> None:
    rows = range(2**octave + 1, 2 ** (octave + 1) + 1)
    rounded = {round_rows(n) for n in rows}
    assert len(rounded) == 4
    assert all(n <= round_rows(n) <= 1.25 * n and round_rows(round_rows(n)) == round_rows(n) for n in rows)


def test_few_rows_stay_as_they_are() -> None:
    assert [round_rows(n) for n in range(1, 9)] == list(range(1, 9))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_a_request_is_batched_with_changes_no_bit(tiny: Path, run: Any, make: Any, precision: Any) -> None:
    if not packing_works(getattr(torch, precision)):
        pytest.skip("this processor multiplies a lone row in another order")
    requests = [
        make(PROMPTS[i // 3 % 4], str(i), seed=i, max_new_tokens=2 + 13 * (i % 6), top_k=7 * (i % 2)) for i in range(24)
    ]
    seen = []
    for slots in (64, 1, 3, 7):
        backend = LocalRolloutBackend(model=tiny, seed=3, max_slots=slots, max_tokens=slots, precision=precision)
        asked = requests if slots % 2 else requests[::-1]
        made = {one.request_id: one for one in run(backend, *asked)}
        seen.append([(made[r.request_id].token_ids.tobytes(), made[r.request_id].logprobs.tobytes()) for r in requests])
        asyncio.run(backend.close())
    assert all(one == seen[0] for one in seen)
