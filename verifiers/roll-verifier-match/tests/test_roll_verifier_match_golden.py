from __future__ import annotations

import pytest

from roll_core.plugin.component import Component
from roll_core.testing.cases import find_cases
from roll_core.testing.golden import judge_rows, read_golden
from roll_verifier_match.plugin import roll_register_verifiers


@pytest.mark.parametrize("component", roll_register_verifiers(), ids=lambda c: c.name)
def test_the_golden_table_comes_out_right(component: Component) -> None:
    cases = find_cases("verifiers", component)
    judged = list(judge_rows(component, cases, read_golden(component, cases)))
    assert len(judged) >= 30
    assert not [(one.row.id, one.row.response, one.said) for one in judged if one.is_error]
