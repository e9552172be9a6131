"""What takes part in a step follows from what is read."""

from __future__ import annotations

import pytest

from roll_core.dataflow import Dataflow
from roll_core.errors import ConfigError


def test_nothing_required_loads_nothing() -> None:
    flow = Dataflow(frozenset({"rollout_logprobs"}))
    assert not (flow.needs_reference or flow.needs_critic or flow.needs_greedy or flow.teachers)
    assert [s.name for s in flow.stages()] == ["rollout", "score", "credit", "update", "sync"]


def test_requirements_bring_their_models_and_stages() -> None:
    flow = Dataflow(frozenset({"ref_logprobs", "values", "greedy_rewards", "logprobs@teacher_math", "old_logprobs"}))
    assert flow.needs_reference
    assert flow.needs_critic
    assert flow.needs_greedy
    assert flow.teachers == {"teacher_math"}
    assert flow.strategy_columns == {"ref_logprobs", "values", "old_logprobs", "logprobs@teacher_math"}
    assert "columns" in [s.name for s in flow.stages()]


def test_description_names_the_models_that_will_be_loaded() -> None:
    assert Dataflow(frozenset()).as_dict()["models"] == ["policy"]
    described = Dataflow(frozenset({"values", "ref_logprobs"})).as_dict()
    assert described["models"] == ["policy", "reference", "critic"]
    assert described["columns"] == ["ref_logprobs", "values"]


def test_every_stage_reads_only_what_an_earlier_one_wrote() -> None:
    flow = Dataflow(frozenset({"ref_logprobs", "greedy_rewards"}))
    there: set[str] = set()
    for stage in flow.stages():
        assert stage.reads <= there, stage.name
        there |= stage.writes


def test_a_column_nobody_computes_is_refused_with_a_near_match() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ref_logprobs'"):
        Dataflow(frozenset({"ref_logprob"}))
