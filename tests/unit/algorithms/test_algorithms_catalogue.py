"""Every built-in algorithm is one short, sourced file that its declaration can build."""

from __future__ import annotations

import inspect
from pathlib import Path

import pydantic
import pytest

import roll_core.builtin.advantages
import roll_core.builtin.policy_losses
from roll_core.builtin.plugin import roll_register_advantages, roll_register_policy_losses
from roll_core.contracts import AdvantageEstimator, PolicyLoss

ADVANTAGES, LOSSES = roll_register_advantages(), roll_register_policy_losses()


@pytest.mark.parametrize("component", [*ADVANTAGES, *LOSSES], ids=lambda c: c.name)
def test_source_and_deviations_are_stated(component):
    doc = inspect.getdoc(component.load_factory()) or ""
    assert "Source:" in doc
    assert "Deviates:" in doc
    lines = Path(inspect.getfile(component.load_factory())).read_text().splitlines()
    assert len(lines) <= 120


@pytest.mark.parametrize("component", [*ADVANTAGES, *LOSSES], ids=lambda c: c.name)
def test_builds_from_defaults_and_refuses_unknown_options(component):
    protocol = AdvantageEstimator if component in ADVANTAGES else PolicyLoss
    assert isinstance(component.build({}), protocol)
    with pytest.raises(pydantic.ValidationError):
        component.build({"no_such_option": 1})


@pytest.mark.parametrize(
    ("package", "declared"),
    [(roll_core.builtin.advantages, ADVANTAGES), (roll_core.builtin.policy_losses, LOSSES)],
    ids=["advantages", "policy_losses"],
)
def test_every_file_is_declared(package, declared):
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {component.name for component in declared}


@pytest.mark.parametrize(
    ("name", "options"),
    [("ppo_clip", {"clip_low": -0.1}), ("ppo_clip", {"dual_clip": 0.5}), ("sapo", {"tau_positive": 0})],
)
def test_options_out_of_range_are_refused(name, options):
    component = next(c for c in LOSSES if c.name == name)
    with pytest.raises(pydantic.ValidationError):
        component.build(options)
