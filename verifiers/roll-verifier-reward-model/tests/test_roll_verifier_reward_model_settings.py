from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_verifier_reward_model.settings import Settings, to_score


def settings(**options):
    base = {
        "folder": Path("x"),
        "label": None,
        "transform": "sigmoid",
        "scale": 1.0,
        "offset": 0.0,
        "threshold": 0.5,
        "overflow": "refuse",
        "max_tokens": None,
        "max_chars": 100,
        "strip_thinking": True,
        "device": "cpu",
        "dtype": "auto",
        "max_batch": 4,
        "max_batch_tokens": 100,
        "max_wait_ms": 0.0,
    }
    return Settings(**{**base, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0.0},
        {"threshold": 1.1},
        {"threshold": math.nan},
        {"max_batch": 0},
        {"max_tokens": 0},
        {"max_chars": 0},
        {"max_batch_tokens": 0},
        {"max_wait_ms": -1.0},
        {"max_wait_ms": math.inf},
        {"scale": 0.0},
        {"offset": math.nan},
        {"transform": "softmax", "scale": 2.0},
        {"transform": "identity", "offset": 1.0},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=r"must be|have no meaning"):
        settings(**options)


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["sigmoid", "linear", "identity", "softmax"]),
    st.floats(-1e6, 1e6).filter(bool),
    st.floats(-1e6, 1e6),
)
def test_every_finite_output_becomes_a_score_or_nothing(raw, transform, scale, offset):
    own = {"scale": scale, "offset": offset} if transform in ("sigmoid", "linear") else {}
    score = to_score(raw, settings(transform=transform, **own))
    if transform in ("sigmoid", "linear") or 0 <= raw <= 1:
        assert score is not None
        assert 0.0 <= score <= 1.0
    else:
        assert score is None


def test_the_transforms_are_what_they_say():
    assert to_score(0.0, settings()) == 0.5
    assert to_score(2.0, settings(scale=0.5, offset=1.0)) == pytest.approx(1 / (1 + math.exp(-2)))
    assert [to_score(x, settings(transform="linear", scale=0.5, offset=0.5)) for x in (-3.0, 0.5, 3.0)] == [
        0.0,
        0.75,
        1.0,
    ]
    assert [to_score(x, settings(transform="identity")) for x in (0.25, 1.0, 1.5, -0.1)] == [0.25, 1.0, None, None]


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_a_higher_logit_never_scores_lower(first, second):
    low, high = sorted((first, second))
    for transform in ("sigmoid", "linear"):
        own = settings(transform=transform, scale=0.3)
        assert to_score(low, own) <= to_score(high, own)
