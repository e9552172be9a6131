from __future__ import annotations

import numpy as np
import pytest

from roll_core.builtin.rewards.format_boxed import FormatBoxed
from roll_core.builtin.rewards.format_regex import FormatRegex
from roll_core.builtin.rewards.length import LengthPenalty
from roll_core.builtin.rewards.verdict import VerdictReward
from roll_core.errors import ConfigError
from roll_core.types import Prompt, Rollout, RolloutGroup, Segment, Ticket, Verdict


def group(*responses: str, verdicts: list[Verdict] | None = None, lengths: list[int] | None = None) -> RolloutGroup:
    ticket, prompt = Ticket(0, "d", "p"), Prompt("p", "d")
    rollouts = []
    for i, response in enumerate(responses):
        n = lengths[i] if lengths else 1
        mask = np.array([False] + [True] * n)
        segment = Segment(np.zeros(n + 1, np.int32), mask, mask, np.zeros(n + 1, np.float32))
        verdict = verdicts[i] if verdicts else None
        rollouts.append(Rollout(ticket, i, prompt, [segment], response, "stop", verdict=verdict))
    return RolloutGroup(ticket, prompt, rollouts)


def test_verdict_is_the_raw_score():
    verdicts = [Verdict.correct(), Verdict.incorrect(score=0.25), Verdict.error("down")]
    assert VerdictReward()(group("a", "b", "c", verdicts=verdicts)) == [1.0, 0.25, None]


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (r"so \boxed{5}", 1),
        (r"\boxed{\frac{1}{2}}", 1),
        (r"\boxed{\{1\}}", 1),
        (r"\boxed{} and \boxed{ 7 }", 1),
        (r"\boxed{}", 0),
        (r"\boxed{  }", 0),
        (r"\boxed{5", 0),
        (r"\boxed{\}", 0),
        ("5", 0),
        (r"<think>\boxed{5}</think> five", 0),
        (r"<think>5</think> \boxed{5}", 1),
        ("\\boxed{" * 50_000, 0),
    ],
)
def test_format_boxed(response, value):
    assert FormatBoxed()(group(response)) == [value]


def test_format_regex():
    assert FormatRegex("^<a>")(group("<a>x", "x<a>")) == [1, 0]
    assert FormatRegex("(?s)<a>.*</a>", full=True)(group("<a>\n</a>", "<a></a>.")) == [1, 0]
    with pytest.raises(ConfigError, match="does not compile"):
        FormatRegex("(")


def test_length_penalty_grows_to_one_at_the_budget():
    assert LengthPenalty(10)(group("a", "b", "c", lengths=[1, 5, 30])) == [-0.1, -0.5, -1.0]
    with pytest.raises(ConfigError, match="at least 1"):
        LengthPenalty(0)
