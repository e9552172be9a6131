"""Every check of backends and strategies catches the fault it is there for."""

import pytest

from roll_core.plugin.component import Component
from roll_core.testing import StrategyCases, bind_checks, checks_for

ACCUMULATION = StrategyCases(accumulation=({"micro_tokens": 4096}, {"micro_tokens": 16}))
FAULTS = [
    ("rollout_backends", "LosesALogprob", "aligns_tokens_and_logprobs"),
    ("rollout_backends", "HalvesLogprobs", "reports_the_models_logprobs"),
    ("rollout_backends", "IgnoresTheSeed", "reproduces_from_its_seed"),
    ("rollout_backends", "DrawsAnew", "reproduces_from_its_seed"),
    ("rollout_backends", "CutsTheStopToken", "sets_finish_reasons"),
    ("rollout_backends", "KeepsItsWeights", "takes_over_weights"),
    ("rollout_backends", "NeverAborts", "returns_on_abort"),
    ("rollout_backends", "BreaksOnCancel", "survives_cancelling"),
    ("rollout_backends", "ForgetsThePrefix", "resumes_from_a_prefix"),
    ("train_strategies", "Trembles", "computes_token_columns"),
    ("train_strategies", "NeverLearns", "overfits_one_batch"),
    ("train_strategies", "LoadsNothing", "restores_bit_equal"),
    ("train_strategies", "CountsSmallOnesTwice", "accumulates_like_a_large_batch"),
    ("train_strategies", "PublishesOldWeights", "publishes_its_weights"),
    ("train_strategies", "ExportsNoTokenizer", "exports_a_model_folder"),
]


def result(kind, name, check):
    component = Component("fake", f"roll_kit_engine_faults:{name}")
    cases = ACCUMULATION if kind == "train_strategies" else None
    return next(b.result() for b in bind_checks(component, kind, cases=cases) if b.check.name == check)


@pytest.mark.parametrize(("kind", "name", "check"), FAULTS)
def test_a_planted_fault_is_caught(kind, name, check):
    found = result(kind, name, check)
    assert found.outcome == "failed"
    assert not found.reason.startswith("raised") or name == "BreaksOnCancel", found.reason


@pytest.mark.parametrize(
    ("kind", "name"), [("rollout_backends", "Backend"), ("train_strategies", "Strategy")], ids=["backend", "strategy"]
)
def test_without_a_fault_the_same_checks_pass(kind, name):
    outcomes = {check: result(kind, name, check).outcome for k, _, check in FAULTS if k == kind}
    assert set(outcomes.values()) == {"passed"}, outcomes


def test_every_check_of_the_engines_has_a_planted_fault():
    kinds = {kind for kind, _, _ in FAULTS}
    assert {(k, c.name) for k in kinds for c in checks_for(k) if c.kind == k} == {(k, c) for k, _, c in FAULTS}
