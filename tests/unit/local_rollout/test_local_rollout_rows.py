"""Numbers of rows are rounded, so that the code a CPU compiles for each of them ends."""

from __future__ import annotations

import pytest

from roll_core.builtin.local_rollout.linear import round_rows


@pytest.mark.parametrize("octave", range(3, 12))
def test_four_numbers_an_octave_and_at_most_a_quarter_more(octave: int) -> None:
    rows = range(2**octave + 1, 2 ** (octave + 1) + 1)
    rounded = {round_rows(n) for n in rows}
    assert len(rounded) == 4
    assert all(n <= round_rows(n) <= 1.25 * n and round_rows(round_rows(n)) == round_rows(n) for n in rows)


def test_few_rows_stay_as_they_are() -> None:
    assert [round_rows(n) for n in range(1, 9)] == list(range(1, 9))
