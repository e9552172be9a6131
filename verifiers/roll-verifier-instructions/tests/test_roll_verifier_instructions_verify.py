from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from roll_core import load_verifier
from roll_core.types import Prompt, Status
from roll_verifier_instructions.registry import CONSTRAINTS
from roll_verifier_instructions.variants import loose_variants
from roll_verifier_instructions.verify import MAX_CHARS, InstructionsVerifier

README = Path(__file__).parents[1] / "README.md"


def reference(*pairs, **more):
    return {"instruction_id_list": [pair[0] for pair in pairs], "kwargs": [pair[1] for pair in pairs], **more}


COMMA = ("punctuation:no_comma", {})
TITLE = ("detectable_format:title", {})
WORDS = ("length_constraints:number_words", {"num_words": 3, "relation": "at least"})
REPEAT = ("combination:repeat_prompt", {"prompt_to_repeat": "Name <<two>> cats, please."})


def verify(response, *pairs, prompt=None, more=None, **config):
    return InstructionsVerifier(**config).verify(response, reference(*pairs, **(more or {})), prompt=prompt)


def test_all_or_nothing_and_the_result_of_each():
    verdict = verify("One, two", COMMA, WORDS, ("keywords:existence", {"keywords": ["two"]}))
    assert (verdict.status, verdict.score) == (Status.INCORRECT, 0.0)
    assert verdict.detail == (
        "broken punctuation:no_comma=fail length_constraints:number_words=fail keywords:existence=pass"
    )
    assert "2 words, wanted at least 3" in verdict.reason


def test_partial_scores_the_share_that_is_followed():
    assert verify("One, two three", COMMA, WORDS, partial=True).score == 0.5
    assert verify("One, two", COMMA, WORDS, partial=True).score == 0.0
    verdict = verify("One two three", COMMA, WORDS, partial=True)
    assert (verdict.status, verdict.score, verdict.detail.split()[0]) == (Status.CORRECT, 1.0, "followed")


def test_an_instruction_that_is_there_twice_counts_twice():
    verdict = verify("one two three", WORDS, (WORDS[0], {"num_words": 9, "relation": "at least"}), partial=True)
    assert verdict.score == 0.5
    assert verdict.detail.count("number_words") == 2


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "...", "***", "<think>All is well.", "<think>x</think>  "])
def test_a_response_without_words_is_invalid(text):
    verdict = verify(text, COMMA)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.INVALID, 0.0, "empty")


def test_a_response_that_is_too_long_is_invalid():
    verdict = verify("a " * MAX_CHARS, COMMA)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.INVALID, 0.0, "too_long")


def test_thinking_is_not_judged():
    assert verify("<think>Hm, well, so</think>All is well", COMMA).score == 1.0


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (None, "must be a mapping"),
        ("not json", "text that is not JSON"),
        ([], "must be a mapping"),
        ({}, "'instruction_id_list' must be a list"),
        (reference(), "is empty"),
        ({"instruction_id_list": ["punctuation:no_comma"]}, "'kwargs' must be a list of 1"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}, {}]}, "'kwargs' must be a list of 1"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [3]}, "must be a mapping, got 3"),
        (reference(("punctuation:no_commas", {})), "did you mean 'punctuation:no_comma'?"),
        (reference(("zzz", {})), "known are change_case:"),
        (reference((WORDS[0], {"num_word": 3, "relation": "at least"})), "did you mean 'num_words'?"),
        (reference((WORDS[0], {"num_words": 3})), "needs the argument 'relation'"),
        (reference((WORDS[0], {"num_words": 3, "relation": "around"})), "must be 'at least' or 'less than'"),
        (reference((WORDS[0], {"num_words": -3, "relation": "at least"})), "must be a whole number from 0"),
        (reference((WORDS[0], {"num_words": 2.5, "relation": "at least"})), "must be a whole number from 0"),
        (reference((WORDS[0], {"num_words": True, "relation": "at least"})), "must be a whole number from 0"),
        (reference((WORDS[0], {"num_words": float("nan"), "relation": "at least"})), "must be a whole number from 0"),
        (reference(("keywords:existence", {"keywords": "cat"})), "must be a list of texts"),
        (reference(("keywords:existence", {"keywords": []})), "must be a list of texts"),
        (reference(("keywords:forbidden_words", {"forbidden_words": ["a", " "]})), "not blank"),
        (
            reference(("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"})),
            "must be one character",
        ),
        (reference(("language:response_language", {"language": "xx"})), "must be a known ISO 639-1 code"),
        (reference(("startend:end_checker", {"end_phrase": ""})), "not blank"),
        (reference(("combination:repeat_prompt", {})), "needs the argument 'prompt_to_repeat'"),
        (
            reference(
                (
                    "length_constraints:nth_paragraph_first_word",
                    {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"},
                )
            ),
            "it cannot be followed",
        ),
    ],
)
def test_a_broken_task_is_an_error_without_score(broken, says):
    for response in ("All is well.", ""):
        verdict = InstructionsVerifier(mode="loose").verify(response, broken)
        assert (verdict.status, verdict.score, verdict.detail) == (Status.ERROR, None, "bad_reference")
        assert says in verdict.reason


def test_references_of_tables_are_read():
    unused = dict.fromkeys(["keywords", "num_words", "relation", "language"])
    row = reference((WORDS[0], {**unused, "num_words": 3.0, "relation": "at least"}), (COMMA[0], unused))
    assert InstructionsVerifier().verify("one two three", row).score == 1.0
    assert InstructionsVerifier().verify("one two three", json.dumps(row)).score == 1.0
    assert InstructionsVerifier().verify("one", {**row, "kwargs": [row["kwargs"][0], None]}).score == 0.0


def test_the_request_may_come_from_the_prompt_or_the_reference():
    bare = ("combination:repeat_prompt", {"prompt_to_repeat": None})
    chat = Prompt("p", "d", messages=({"role": "system", "content": "x"}, {"role": "user", "content": "Say hi."}))
    for prompt, more in ((Prompt("p", "d", text="Say hi."), {}), (chat, {}), (None, {"prompt": "Say hi."})):
        assert verify("Say hi.\nHi!", bare, prompt=prompt, more=more).score == 1.0
        assert verify("Hi!", bare, prompt=prompt, more=more).score == 0.0
    assert verify("Say hi.\nHi!", bare, prompt=Prompt("p", "d", token_ids=(1,))).status is Status.ERROR


def test_the_repeated_request_is_not_the_policys_text():
    request = REPEAT[1]["prompt_to_repeat"]
    assert verify(f"{request}\n\nTom and Kim.", REPEAT, COMMA).score == 1.0
    assert verify(f"{request}\n\nTom, Kim.", REPEAT, COMMA).score == 0.0
    assert verify(f"{request}\n\nTom and Kim.", REPEAT, TITLE).score == 0.0
    assert verify(f"{request}\n\n<<Tom>> and Kim.", REPEAT, TITLE).score == 1.0
    assert verify(request, REPEAT, COMMA, partial=True).score == 0.0
    six = ("length_constraints:number_words", {"num_words": 7, "relation": "at least"})
    assert verify(f"{request}\n\nTom and Kim.", REPEAT, six).score == 1.0


def test_loose_reads_the_official_eight():
    text = "Sure:\n*All* is well.\nBye, now."
    assert loose_variants(text) == [
        text,
        "Sure:\nAll is well.\nBye, now.",
        "*All* is well.\nBye, now.",
        "Sure:\n*All* is well.",
        "*All* is well.",
        "All is well.\nBye, now.",
        "Sure:\nAll is well.",
        "All is well.",
    ]
    assert loose_variants("one") == ["one"]
    assert verify(text, COMMA).score == 0.0
    assert verify(text, COMMA, mode="loose").score == 1.0


def test_each_instruction_may_be_followed_by_another_reading():
    text = 'Sure, here:\n"All is well"'
    quotation = ("startend:quotation", {})
    assert verify(text, COMMA, quotation, mode="loose").score == 1.0
    assert verify(text, COMMA, quotation, partial=True).score == 0.0


def test_it_loads_by_name_and_survives_pickling():
    verdict = load_verifier("instructions", mode="loose", partial=True)("All is well", reference(COMMA, TITLE))
    assert (verdict.score, verdict.verifier) == (0.5, "instructions")
    assert pickle.loads(pickle.dumps(InstructionsVerifier("loose"))) == InstructionsVerifier("loose")


def test_the_readme_and_docstrings_define_every_constraint():
    text = README.read_text(encoding="utf-8")
    for name, kind in CONSTRAINTS.items():
        assert f"`{name}`" in text, name
        assert kind.__doc__ is not None
        assert "Deviates:" in kind.__doc__, name
