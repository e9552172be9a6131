"""Every check catches the fault it is there for, and no other check is blamed for it."""

import pytest

from roll_core.plugin.component import Component
from roll_core.testing import Cases, EnvironmentCases, ModelCases, VerifierCases, bind_checks, checks_for

CASES = {
    "verifiers": VerifierCases(gold=[("4", "4"), (" 12\n", "12")], wrong=[("5", "4")], limit_s=2.0),
    "environments": EnvironmentCases(actions=["left", "right"]),
    "models": ModelCases(is_runnable=True),
}
RIGHT = [
    ("verifiers", "Verifier"),
    ("verifiers", "AsyncVerifier"),
    ("rewards", "Reward"),
    ("filters", "Filter"),
    ("mixers", "Mixer"),
    ("sources", "Source"),
    ("environments", "Environment"),
    ("environments", "AsyncEnvironment"),
    ("advantages", "Advantage"),
    ("advantages", "RawRewardDeclared"),
    ("advantages", "ScalesByTheBatchDeclared"),
    ("policy_losses", "Loss"),
    ("policy_losses", "WrongSignDeclared"),
    ("trackers", "Tracker"),
    ("models", "Model"),
    ("commands", "command"),
]
FAULTS = [
    ("verifiers", "NeverRight", "accepts_gold"),
    ("verifiers", "AnyDigit", "rejects_wrong"),
    ("verifiers", "LikesSilence", "rejects_empty"),
    ("verifiers", "LikesChatter", "rejects_unrelated"),
    ("verifiers", "LetsEscape", "scores_what_the_policy_does"),
    ("verifiers", "SaysNaN", "returns_finite_scores"),
    ("verifiers", "Moody", "is_deterministic"),
    ("verifiers", "HoldsALambda", "is_picklable"),
    ("verifiers", "ChokesOnNul", "survives_odd_text"),
    ("verifiers", "Slow", "bounds_its_time"),
    ("verifiers", "DiesOnLength", "bounds_its_time"),
    ("verifiers", "OddRequirements", "fits_its_contract"),
    ("rewards", "OneShort", "gives_one_value_per_rollout"),
    ("rewards", "NaNForNothing", "gives_finite_values"),
    ("rewards", "ByPlace", "follows_a_permutation"),
    ("rewards", "WritesRecords", "leaves_its_input_alone"),
    ("rewards", "ByInstance", "is_deterministic"),
    ("filters", "EmptyReason", "gives_a_reason_or_none"),
    ("filters", "NumberedReason", "is_deterministic"),
    ("filters", "Reorders", "leaves_its_input_alone"),
    ("filters", "GivesUpEarly", "is_hopeless_only_without_hope"),
    ("mixers", "GrowsAtTheEnd", "has_normalised_weights"),
    ("mixers", "NeverNothing", "draws_as_many_as_asked"),
    ("mixers", "DrawsEvenly", "keeps_its_shares"),
    ("mixers", "IgnoresEnds", "honours_available"),
    ("mixers", "Forgetful", "resumes_identically"),
    ("mixers", "KeepsObjects", "resumes_identically"),
    ("mixers", "SeedsByHash", "is_the_same_in_another_process"),
    ("mixers", "ClearsGroups", "leaves_its_input_alone"),
    ("sources", "SaysTooMuch", "has_as_many_rows_as_it_says"),
    ("sources", "GivesTuples", "gives_mappings"),
    ("sources", "CountsFromTheEnd", "refuses_wrong_indices"),
    ("sources", "FreshRows", "is_deterministic"),
    ("environments", "EarnsNaN", "gives_well_formed_steps"),
    ("environments", "Dreams", "is_deterministic"),
    ("environments", "GoesOn", "refuses_a_step_after_the_end"),
    ("environments", "ClosesOnce", "closes_twice"),
    ("advantages", "PerRollout", "gives_one_value_per_token"),
    ("advantages", "OffTheMask", "is_zero_off_the_mask"),
    ("advantages", "DividesByNothing", "is_finite"),
    ("advantages", "RawReward", "is_zero_for_equal_rewards"),
    ("advantages", "AgainstTheFirst", "follows_a_permutation"),
    ("advantages", "ScalesByTheBatch", "keeps_to_its_scope"),
    ("advantages", "Overwrites", "leaves_its_input_alone"),
    ("policy_losses", "OneNumber", "gives_one_value_per_token"),
    ("policy_losses", "DoublesFarGradients", "matches_finite_differences"),
    ("policy_losses", "CountsThePrompt", "ignores_masked_tokens"),
    ("policy_losses", "WrongSign", "is_reinforce_at_ratio_one"),
    ("policy_losses", "AveragesOverTheMicroBatch", "adds_up_over_micro_batches"),
    ("policy_losses", "Unclamped", "is_finite_at_extreme_ratios"),
    ("policy_losses", "WritesInPlace", "leaves_its_input_alone"),
    ("trackers", "NeedsScores", "survives_a_run"),
    ("trackers", "RoundsNumbers", "survives_odd_numbers"),
    ("trackers", "WantsOrder", "survives_steps_out_of_order"),
    ("trackers", "FinishesOnce", "survives_a_second_finish"),
    ("trackers", "PopsTimes", "leaves_its_input_alone"),
    ("trackers", "WritesHere", "writes_only_into_the_run_folder"),
    ("models", "no_tokenizer", "resolves_to_a_model_folder"),
    ("commands", "wordless_command", "shows_its_help"),
]
COVERS_OTHERS = {"PerRollout", "OneNumber"}
"""A result of the wrong shape fails the checks that look into it as well."""


IN_A_CHILD = {"survives_odd_text", "bounds_its_time", "imports_no_tensor_library", "is_the_same_in_another_process"}
"""Checks that start an interpreter: run on right components, and on the faults they are there for."""


MODULES = dict.fromkeys(("mixers", "environments", "advantages", "policy_losses"), "roll_kit_algorithm_faults")


def run(kind, name, module=None, skip=frozenset(), **how):
    module = module or MODULES.get(kind, "roll_kit_faults")
    component = Component("fake", f"{module}:{name}", **how)
    bound = bind_checks(component, kind, cases=CASES.get(kind, Cases()))
    return {b.check.name: b.result() for b in bound if b.check.name not in skip}


def outcomes(results, outcome):
    return {name for name, r in results.items() if r.outcome == outcome}


@pytest.mark.parametrize(("kind", "name"), RIGHT)
def test_a_right_component_passes_every_check(kind, name):
    results = run(kind, name)
    assert not outcomes(results, "failed"), results
    assert not any(r.lacks_cases for r in results.values())


@pytest.mark.parametrize(("kind", "name", "expected"), FAULTS)
def test_a_planted_fault_is_caught_by_its_own_check(kind, name, expected):
    results = run(kind, name, skip=set() if expected in IN_A_CHILD else IN_A_CHILD)
    failed = outcomes(results, "failed")
    assert expected in failed, results
    assert failed == {expected} or name in COVERS_OTHERS, {c: results[c].reason for c in failed}
    assert len(results[expected].reason) > 20


def test_a_heavy_import_is_caught():
    failed = outcomes(run("verifiers", "Verifier", module="roll_kit_heavy"), "failed")
    assert failed == {"imports_no_tensor_library"}


def test_a_config_that_swallows_typos_is_caught():
    failed = outcomes(run("verifiers", "Verifier", skip=IN_A_CHILD, config="roll_kit_faults:LooseConfig"), "failed")
    assert failed == {"rejects_unknown_options"}


def test_a_factory_of_another_kind_is_caught():
    results = run("rewards", "Filter")
    assert results["fits_its_contract"].outcome == "failed"
    assert "__call__" in results["fits_its_contract"].reason


def test_every_check_of_the_light_kinds_has_a_planted_fault():
    planted = {(kind, check) for kind, _, check in FAULTS}
    planted |= {(kind, check) for kind in CASES for check in ("imports_no_tensor_library", "rejects_unknown_options")}
    kinds = {kind for kind, _ in RIGHT}
    own = {(kind, check.name) for kind in kinds for check in checks_for(kind) if check.kind == kind}
    assert own <= planted
