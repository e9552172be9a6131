from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_core.builtin.filters.informative_groups import InformativeGroups
from roll_core.builtin.filters.pass_rate import PassRate
from roll_core.contracts import EarlyFilter
from roll_core.errors import ConfigError
from roll_core.types import Prompt, Rollout, RolloutGroup, Ticket, Verdict


def group(scores: list[float | None]) -> RolloutGroup:
    ticket, prompt = Ticket(0, "d", "p"), Prompt("p", "d")
    return RolloutGroup(
        ticket, prompt, [Rollout(ticket, i, prompt, [], "", "stop", verdict=verdict(s)) for i, s in enumerate(scores)]
    )


def verdict(score: float | None) -> Verdict:
    if score is None:
        return Verdict.error("down")
    return Verdict.correct(score=score) if score == 1.0 else Verdict.incorrect(score=score)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([1, 1, 1], "all_correct"),
        ([0, 0, 0], "all_wrong"),
        ([0.5, 0.5], "all_equal"),
        ([0.3, 0.3 + 1e-8], "all_equal"),
        ([0, 1], None),
        ([0.3, 0.31], None),
        ([1, 1, None], "all_correct"),
        ([0, 1, None], None),
        ([1, None], "too_few_scored"),
        ([None, None], "too_few_scored"),
        ([], "too_few_scored"),
    ],
)
def test_informative_groups(scores, reason):
    assert InformativeGroups().reject(group(scores)) == reason


def test_informative_groups_reads_the_score_and_not_the_reward():
    g = group([1, 1])
    from roll_core.types import RewardRecord

    g.rollouts[0].rewards.append(RewardRecord("length", -0.5))
    assert InformativeGroups().reject(g) == "all_correct"


@pytest.mark.parametrize(
    ("low", "high", "scores", "reason"),
    [
        (0.25, 0.75, [1, 0, 0, 0], None),
        (0.25, 0.75, [1, 1, 1, 0], None),
        (0.25, 0.75, [0, 0, 0, 0], "too_hard"),
        (0.25, 0.75, [1, 1, 1, 1], "too_easy"),
        (0.25, 0.75, [1, None, 0, None], None),
        (0.25, 0.75, [1, None], "too_few_scored"),
        (1 / 3, 1, [1, 0, 0], None),
        (0.0, 2 / 3, [1, 1, 0], None),
    ],
)
def test_pass_rate(low, high, scores, reason):
    assert PassRate(low, high).reject(group(scores)) == reason


def test_pass_rate_stops_a_group_that_cannot_reach_its_band():
    early = PassRate(0.25, 0.75)
    assert early.hopeless([0, 0, 0], 1) is None
    assert early.hopeless([0, 0, 0, 0], 1) == "too_hard"
    assert early.hopeless([1, 1, 1, 1], 1) == "too_easy"
    assert early.hopeless([None, None], 1) == "too_few_scored"


FILTERS = [InformativeGroups(), InformativeGroups(0.6), PassRate(0.2, 0.8), PassRate(0.5, 0.5), PassRate(0.9, 1.0)]
LEVELS = (0.0, 0.25, 0.5, 1.0)
OUTCOMES = (None, *LEVELS)
finished = st.lists(st.sampled_from(OUTCOMES), max_size=5)


@given(st.sampled_from(FILTERS), finished, st.integers(1, 3))
def test_hopeless_is_never_said_of_a_group_that_could_still_pass(early, scores, missing):
    if early.hopeless(scores, missing) is not None:
        for rest in itertools.product(OUTCOMES, repeat=missing):
            assert early.reject(group([*scores, *rest])) is not None


@given(st.sampled_from(FILTERS), finished, st.randoms())
def test_hopeless_with_nothing_missing_is_reject_and_order_does_not_matter(early, scores, rng):
    assert isinstance(early, EarlyFilter)
    reason = early.reject(group(scores))
    assert early.hopeless(scores, 0) == reason
    shuffled = list(scores)
    rng.shuffle(shuffled)
    assert early.reject(group(shuffled)) == reason


@given(finished, st.integers(1, 3))
def test_pass_rate_sees_early_whatever_it_can(scores, missing):
    early = PassRate(0.9, 1.0)
    fits = any(early.reject(group([*scores, *rest])) is None for rest in itertools.product((None, 1.0), repeat=missing))
    assert (early.hopeless(scores, missing) is None) == fits


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="tolerance"):
        InformativeGroups(-1)
    with pytest.raises(ConfigError, match="low <= high"):
        PassRate(0.8, 0.2)
