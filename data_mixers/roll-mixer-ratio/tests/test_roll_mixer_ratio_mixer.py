from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.contracts import CONTEXT, Mixer
from roll_core.errors import ConfigError, UnknownNameError
from roll_mixer_ratio import RatioMixer, SchedulePoint
from roll_mixer_ratio.plugin import roll_register_mixers


def mixer(domains="abc", *, sizes=None, seed=0, **options):
    names = list(domains)
    return RatioMixer(domains=names, sizes=sizes or dict.fromkeys(names, 10), seed=seed, total_steps=100, **options)


def draws(built, count, *, step=0, available=None):
    return built.draw(count, step=step, available=available or list(built.weights(0)))


@settings(max_examples=150, deadline=None)
@given(
    weights=st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(any),
    seed=st.integers(0, 1000),
    chunks=st.lists(st.integers(0, 17), min_size=1, max_size=12),
)
def test_counts_stay_within_one_of_target_at_all_times(weights, seed, chunks):
    names = [f"d{i}" for i in range(len(weights))]
    built = mixer(names, weights=dict(zip(names, map(float, weights), strict=True)), seed=seed)
    total = sum(weights)
    counts = dict.fromkeys(names, 0)
    n = 0
    for chunk in chunks:
        for name in draws(built, chunk):
            n += 1
            counts[name] += 1
            for other, weight in zip(names, weights, strict=True):
                assert abs(counts[other] - n * Fraction(weight, total)) < 1


def test_shares_that_defeat_largest_credit_first():
    # smooth weighted round robin is 1.05 prompts off its target here
    weights = dict(zip("abcdefgh", map(float, (10, 10, 3, 1, 1, 10, 5, 3)), strict=True))
    built = mixer(weights, weights=weights)
    counts = dict.fromkeys(weights, 0)
    for n, name in enumerate(draws(built, 430), start=1):
        counts[name] += 1
        assert all(abs(counts[d] - n * Fraction(int(weights[d]), 43)) < 1 for d in weights)


def test_decimal_weights_are_exact_after_every_period():
    built = mixer("xy", weights={"x": 0.6, "y": 0.4})
    named = draws(built, 5000)
    assert all(named[i : i + 5].count("x") == 3 for i in range(0, 5000, 5))


def test_drawing_in_one_call_or_many_is_the_same():
    weights = {"a": 3.0, "b": 2.0, "c": 1.0}
    whole, parts = mixer(weights=weights), mixer(weights=weights)
    assert draws(whole, 60) == [name for size in (1, 7, 0, 30, 22) for name in draws(parts, size)]


def test_small_batches_are_not_always_started_by_the_same_domain():
    built = mixer("xy")
    starts = [draws(built, 2) for _ in range(200)]
    assert all(sorted(pair) == ["x", "y"] for pair in starts)
    assert 70 <= sum(pair[0] == "x" for pair in starts) <= 130


def test_ties_depend_on_the_seed_and_not_on_the_order_of_domains():
    assert draws(mixer("abc", seed=1), 90) == draws(mixer("cab", seed=1), 90)
    assert draws(mixer("abc", seed=1), 90) != draws(mixer("abc", seed=2), 90)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1.0, {"a": 0.1, "b": 0.9}),
        (2.0, {"a": 0.25, "b": 0.75}),
        (math.inf, {"a": 0.5, "b": 0.5}),
        (0.001, {"a": 0.0, "b": 1.0}),
    ],
)
def test_temperature_shares(temperature, expected):
    built = mixer("ab", sizes={"a": 100, "b": 900}, temperature=temperature)
    assert built.weights(3) == pytest.approx(expected)


def test_schedule_is_linear_between_points_and_holds_outside():
    points = [SchedulePoint(10, {"a": 1.0, "b": 0.0}), SchedulePoint(20, {"a": 1.0, "b": 3.0})]
    built = mixer("ab", schedule=points)
    assert built.weights(0) == built.weights(10) == {"a": 1.0, "b": 0.0}
    assert built.weights(14) == pytest.approx({"a": 0.7, "b": 0.3})
    assert built.weights(20) == built.weights(99) == {"a": 0.25, "b": 0.75}


def test_scheduled_draws_follow_the_summed_targets():
    points = [SchedulePoint(0, {"a": 9.0, "b": 1.0, "c": 0.0}), SchedulePoint(50, {"a": 0.0, "b": 1.0, "c": 9.0})]
    built = mixer("abc", schedule=points)
    counts, target = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0.0)
    for step in range(60):
        for name in draws(built, 7, step=step):
            counts[name] += 1
        for name, share in built.weights(step).items():
            target[name] += 7 * share
        # what `a` is still owed when its share reaches 0 passes to the others
        assert all(abs(counts[name] - target[name]) < 2 for name in counts)


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    data=st.data(),
)
def test_only_available_domains_are_named_and_get_their_shares(weights, data):
    names = [f"d{i}" for i in range(len(weights))]
    built = mixer(names, weights=dict(zip(names, map(float, weights), strict=True)))
    draws(built, data.draw(st.integers(0, 25)))
    left = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    named = draws(built, 300, available=left)
    total = sum(weights[names.index(name)] for name in left)
    assert set(named) <= set(left)
    for name in left:
        assert abs(named.count(name) - 300 * weights[names.index(name)] / total) < len(names)


def test_state_is_json_and_resumes_exactly():
    weights = {"a": 5.0, "b": 3.0, "c": 1.0}
    whole = mixer(weights=weights, seed=4)
    head = draws(whole, 13)
    state = json.loads(json.dumps(whole.state_dict()))
    resumed = mixer(weights=weights, seed=4)
    resumed.load_state_dict(state)
    assert draws(resumed, 50) == draws(whole, 50)
    assert head


def test_a_domain_may_be_added_to_a_state_but_not_removed():
    old = mixer("ab")
    draws(old, 3)
    bigger = mixer("abc")
    bigger.load_state_dict(old.state_dict())
    assert sorted(draws(bigger, 300).count(name) for name in "abc") == pytest.approx([100, 100, 100], abs=2)
    with pytest.raises(ConfigError, match=r"has domains c, which this run lacks"):
        mixer("ab").load_state_dict(bigger.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"a": 1.0, "b": 1.0}}, r"names no weight for c; add 'c: 0'"),
        ({"weights": {"a": 1.0, "b": 1.0, "c": -0.5}}, r"mixer\.weights\.c is -0\.5"),
        ({"weights": {"a": 1.0, "b": 1.0, "c": math.nan}}, r"mixer\.weights\.c is nan"),
        ({"weights": {"a": 0.0, "b": 0.0, "c": 0.0}}, r"all weights are 0"),
        ({"weights": dict.fromkeys("abc", 1.0), "temperature": 1.0}, r"one of weights, temperature and schedule"),
        ({"temperature": 0.0}, r"mixer\.temperature is 0\.0"),
        ({"temperature": math.nan}, r"must be above 0"),
        ({"schedule": []}, r"schedule is empty"),
        (
            {"schedule": [SchedulePoint(5, dict.fromkeys("abc", 1.0)), SchedulePoint(5, dict.fromkeys("abc", 1.0))]},
            r"steps must increase",
        ),
        (
            {"schedule": [SchedulePoint(0, {"a": 1.0, "b": 1.0})]},
            r"schedule\[0\]\.weights names no weight for c",
        ),
    ],
)
def test_bad_options_are_config_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        mixer(**options)


def test_huge_weights_are_only_relative():
    assert mixer(weights=dict.fromkeys("abc", 1e308)).weights(0) == pytest.approx(dict.fromkeys("abc", 1 / 3))


def test_unknown_domain_gets_a_near_match():
    with pytest.raises(UnknownNameError, match=r"no domain named 'maths' .*did you mean 'math'"):
        mixer(["math", "json"], weights={"maths": 1.0, "json": 1.0})


def test_temperature_needs_sizes():
    with pytest.raises(ConfigError, match="unknown or 0 for: b"):
        mixer("ab", sizes={"a": 3, "b": 0}, temperature=2.0)


def test_no_weight_left_is_an_error_that_says_what_to_do():
    built = mixer("ab", weights={"a": 1.0, "b": 0.0})
    with pytest.raises(ConfigError, match=r"at step 7 no domain with a weight above 0 is left \(available: b\)"):
        built.draw(1, step=7, available=["b"])


def test_component_builds_from_plain_config_values():
    (component,) = roll_register_mixers()
    context = {"domains": ["a", "b"], "sizes": {"a": 1, "b": 1}, "seed": 0, "total_steps": 5}
    assert set(context) == set(CONTEXT["mixers"])
    schedule = [{"step": 0, "weights": {"a": 1, "b": 1}}]
    built = component.build({"schedule": schedule}, **context)
    assert isinstance(built, Mixer)
    assert built.weights(0) == {"a": 0.5, "b": 0.5}
    with pytest.raises(ValueError, match="wieghts"):
        component.build({"wieghts": {}}, **context)
