from __future__ import annotations

import pytest

from roll_core.config.faults import FaultsConfig
from roll_core.recovery import LONGEST_WAIT_S, Patience


def test_losses_without_progress_are_counted_and_waits_double():
    patience = Patience(FaultsConfig(restarts=3, wait_s=2.0))
    assert [patience.after_loss(4) for _ in range(4)] == [2.0, 4.0, 8.0, None]
    assert patience.count == 3
    assert "3 restarts in a row" in patience.verdict


def test_a_committed_step_begins_a_new_row():
    patience = Patience(FaultsConfig(restarts=1, wait_s=0))
    assert [patience.after_loss(step) for step in (0, 1, 2, 2)] == [0.0, 0.0, 0.0, None]
    assert patience.count == 3


def test_a_run_that_is_thrown_further_back_has_made_no_progress():
    patience = Patience(FaultsConfig(restarts=2, wait_s=0))
    assert [patience.after_loss(step) for step in (7, 5, 6)] == [0.0, 0.0, None]


def test_no_restart_is_a_choice():
    patience = Patience(FaultsConfig(restarts=0))
    assert patience.after_loss(9) is None
    assert "faults.restarts is 0" in patience.verdict


@pytest.mark.parametrize("row", [10, 2000])
def test_waits_are_bounded(row: int):
    patience = Patience(FaultsConfig(restarts=row, wait_s=5.0))
    waits = [patience.after_loss(0) for _ in range(row)]
    assert waits[-1] == LONGEST_WAIT_S
