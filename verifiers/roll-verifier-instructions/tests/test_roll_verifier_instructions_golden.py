from __future__ import annotations

from collections import Counter

import pytest

from roll_core.testing.golden import judge_rows, read_golden
from roll_verifier_instructions.conformance import CONFORMANCE
from roll_verifier_instructions.plugin import roll_register_verifiers
from roll_verifier_instructions.registry import CONSTRAINTS

COMPONENT = roll_register_verifiers()[0]
CASES = CONFORMANCE["verifiers/instructions"]
ROWS = read_golden(COMPONENT, CASES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_row_is_judged_right(row):
    (judged,) = judge_rows(COMPONENT, CASES, [row])
    assert not judged.is_error, (row, judged.said)


def test_every_constraint_has_enough_rows_of_both_labels():
    counts = Counter((row.kind, row.expected) for row in ROWS)
    for kind in CONSTRAINTS:
        assert counts[kind, True] >= 3, kind
        assert counts[kind, False] >= 3, kind
        assert counts[kind, True] + counts[kind, False] >= 8, kind
    assert {row.kind for row in ROWS} == set(CONSTRAINTS)
    assert len({row.id for row in ROWS}) == len(ROWS)
