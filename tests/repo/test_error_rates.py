"""Every verifier ships labelled answers, and its README shows the error rates measured on them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from roll_core.plugin.host import Host
from roll_core.testing.cases import VerifierCases, find_cases
from roll_core.testing.error_rates import BLOCK, fill_blocks
from roll_core.testing.golden import Judged, judge_rows, read_golden

ROOT = Path(__file__).parents[2]
READMES = sorted(ROOT.glob("verifiers/*/README.md"))
HOST = Host.discover(enforce=False)
WITHOUT_TRUTH = {"reward_model", "pairwise_judge"}
"""Verifiers whose verdicts no table can label: a model decides each of them."""


@cache
def judged(name: str) -> tuple[Judged, ...]:
    component = HOST.component("verifiers", name)
    cases = find_cases("verifiers", component)
    assert isinstance(cases, VerifierCases)
    return tuple(judge_rows(component, cases, read_golden(component, cases)))


def named_in(path: Path) -> list[str]:
    return [match["component"] for match in BLOCK.finditer(path.read_text(encoding="utf-8"))]


def test_every_verifier_shows_its_rates() -> None:
    offered = {component.name for _, owner, component in HOST.components("verifiers")}
    shown = {name for path in READMES for name in named_in(path)}
    assert shown == offered - WITHOUT_TRUTH


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_the_rates_in_a_readme_are_those_measured(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    fresh = fill_blocks(text, {name: judged(name) for name in named_in(path)})
    assert fresh == text, f"run: roll plugins rates --readme {path.relative_to(ROOT)}"


@pytest.mark.parametrize("name", [name for path in READMES for name in named_in(path)])
def test_a_golden_table_has_both_labels_and_unique_ids(name: str) -> None:
    rows = [one.row for one in judged(name)]
    assert len({row.id for row in rows}) == len(rows)
    assert {True, False} <= {row.expected for row in rows}


@pytest.mark.parametrize("name", [name for path in READMES for name in named_in(path)])
def test_no_wrong_answer_is_accepted(name: str) -> None:
    paid = [one for one in judged(name) if one.found and not one.row.expected and not one.row.disputed]
    assert not paid, [(one.row.id, one.row.response, one.row.reference) for one in paid[:5]]
