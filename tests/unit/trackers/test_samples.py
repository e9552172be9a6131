"""Which rollouts are shown, when, and as what text."""

from __future__ import annotations

import pytest

from roll_core.builtin.trackers.samples import COLUMNS, Samples, pick, prompt_text, sample_row
from roll_core.testing.fakes import make_group, make_rollout
from roll_core.types import Prompt


def test_domains_come_in_turn_then_prompts_then_answers() -> None:
    groups = [
        make_group([1.0, 0.0], ticket=1, domain="a"),
        make_group([1.0, 0.0], ticket=2, domain="a"),
        make_group([1.0, 0.0], ticket=3, domain="b"),
    ]
    chosen = [(r.ticket.id, r.index) for r in pick(groups, 5)]
    assert chosen == [(1, 0), (3, 0), (2, 0), (3, 1), (1, 1)]
    assert len(pick(groups, 100)) == 6
    assert pick(groups, 0) == []
    assert pick([], 3) == []


def test_every_nth_step_from_the_first_on() -> None:
    samples = Samples(count=2, every=3)
    assert [s for s in range(9) if samples.rows(s, [make_group([1.0])])] == [1, 4, 7]
    assert Samples(count=0).rows(1, [make_group([1.0])]) == []


def test_a_row_tells_a_failure_of_the_machinery_from_a_wrong_answer() -> None:
    wrong = dict(zip(COLUMNS, sample_row(4, make_rollout(0.0, response="no", reward=-0.5)), strict=True))
    assert wrong == {
        "step": 4, "domain": "fake", "prompt": "user: 1+1=", "response": "no", "status": "incorrect", "score": 0.0,
        "reward": -0.5,
    }  # fmt: skip
    assert sample_row(4, make_rollout(None, response="x"))[4:] == ("error", None, None)
    unjudged = make_rollout(1.0)
    unjudged.verdict = None
    assert sample_row(4, unjudged)[4:] == (None, None, None)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (Prompt("p", "d", text="a\nb"), "a\nb"),
        (Prompt("p", "d", text="a\udc00"), "a?"),
        (Prompt("p", "d", token_ids=(1, 2, 3)), "<3 token ids>"),
        (
            Prompt("p", "d", messages=({"role": "system", "content": "s"}, {"role": "user", "content": "u"})),
            "system: s\n\nuser: u",
        ),
        (
            Prompt(
                "p", "d", messages=({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]},)
            ),
            "user: <image>?",
        ),
        (Prompt("p", "d", messages=({"role": "assistant", "content": None, "tool_calls": []},)), "assistant: "),
    ],
)
def test_prompts_of_every_kind_have_a_text(prompt: Prompt, text: str) -> None:
    assert prompt_text(prompt) == text


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0, got -1"):
        Samples(count=-1)
    with pytest.raises(ValueError, match="n of at least 1, got 0"):
        Samples(every=0)
