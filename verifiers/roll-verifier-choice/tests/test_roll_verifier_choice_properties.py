from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_verifier_choice.verify import ChoiceVerifier

TEXTS = ["London", "Paris", "Berlin", "Rome"]
ROW = {"answer": "B", "choices": TEXTS}
LETTERS = "ABCD"
DRESSES = ["{}", "({})", "{}.", "**{}**", "\\boxed{{{}}}", "\\text{{{}}}", "${}$", "Answer: {}", "The answer is {}."]
SOUP = ["A", "B", "b", "(C)", "D)", "Paris", "Rome", " or ", " and ", ", ", "not ", "both ", "is correct", "\n", ". "]
SOUP += [
    "The answer is ",
    "Answer: ",
    "\\boxed{",
    "}",
    "<answer>",
    "</answer>",
    "<think>",
    "</think>",
    "\\text{",
    "**",
    "?",
]
MODES = [{}, {"extract": "boxed"}, {"extract": "last"}, {"form": "answer"}, {"multiple": True}]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from(SOUP), max_size=14).map("".join))
def test_never_raises_always_scores_and_repeats_itself(text):
    for mode in MODES:
        verifier = ChoiceVerifier(**mode)
        verdict = verifier.verify(text, ROW)
        assert verdict.score in (0.0, 1.0)
        assert verifier.verify(text, ROW) == verdict


@given(st.sampled_from(LETTERS), st.sampled_from(LETTERS), st.sampled_from(DRESSES))
def test_the_dress_does_not_matter(given_letter, right, dress):
    for form in ("answer", "response"):
        verdict = ChoiceVerifier(form=form).verify(dress.format(given_letter), {"answer": right, "choices": TEXTS})
        assert verdict.score == float(given_letter == right)


@given(st.sampled_from(TEXTS), st.sampled_from([d for d in DRESSES if d != "({})"]))
def test_text_and_letter_say_the_same(text, dress):
    letter = LETTERS[TEXTS.index(text)]
    scores = {ChoiceVerifier().verify(dress.format(said), ROW).score for said in (text, letter, f"{letter}) {text}")}
    assert scores == {float(letter == "B")}


@given(st.permutations(LETTERS), st.integers(2, 4), st.sampled_from([", ", " or ", " and ", "/"]))
def test_several_for_one_is_never_right(letters, count, joint):
    said = joint.join(letters[:count])
    for dress in DRESSES:
        assert ChoiceVerifier().verify(dress.format(said), ROW).score == 0.0


@given(st.sets(st.sampled_from(LETTERS), min_size=1), st.sets(st.sampled_from(LETTERS), min_size=1))
def test_sets_are_compared_exactly(given_letters, right):
    verifier = ChoiceVerifier(multiple=True)
    verdict = verifier.verify(f"The answer is {', '.join(sorted(given_letters))}.", sorted(right))
    assert verdict.score == float(given_letters == right)


@given(st.sampled_from(LETTERS), st.text(st.characters(exclude_characters="<"), max_size=40))
def test_thinking_does_not_count(letter, thought):
    assert ChoiceVerifier().verify(f"<think>{thought} The answer is B.</think>", ROW).score == 0.0
    verdict = ChoiceVerifier().verify(f"<think>{thought}</think>The answer is {letter}.", ROW)
    assert verdict.answer == letter


@pytest.mark.parametrize(
    "unit", ["a", "\\boxed{", "answer is ", "答案", "B) ", "not ", "\\text{", "A or ", "\n", "if the answer "]
)
def test_a_megabyte_takes_no_time(unit):
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    ChoiceVerifier().verify(text, ROW)
    assert time.perf_counter() - started < 20
