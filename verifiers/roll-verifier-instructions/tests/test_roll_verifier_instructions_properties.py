from __future__ import annotations

import random
import time
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.types import Status
from roll_verifier_instructions.registry import CONSTRAINTS
from roll_verifier_instructions.scripts import LANGUAGES
from roll_verifier_instructions.verify import MAX_CHARS, InstructionsVerifier

relations = st.sampled_from(["at least", "less than"])
counts = st.integers(0, 1200)
texts = st.text(min_size=1, max_size=30).filter(lambda text: text.strip())
letters = st.sampled_from([*"abcqz#!éñ"])
VALUES = {
    "capital_frequency": counts,
    "capital_relation": relations,
    "end_phrase": texts,
    "first_word": st.sampled_from(["weekend", "elm", "it"]),
    "forbidden_words": st.lists(texts, min_size=1, max_size=4),
    "frequency": counts,
    "keyword": texts,
    "keywords": st.lists(texts, min_size=1, max_size=4),
    "language": st.sampled_from(sorted(LANGUAGES)),
    "let_frequency": counts,
    "let_relation": relations,
    "letter": letters,
    "nth_paragraph": st.integers(1, 2),
    "num_bullets": counts,
    "num_highlights": counts,
    "num_paragraphs": st.integers(2, 9),
    "num_placeholders": counts,
    "num_sections": counts,
    "num_sentences": counts,
    "num_words": counts,
    "postscript_marker": st.sampled_from(["P.S.", "P.P.S", "NB:", "*PS*"]),
    "prompt_to_repeat": texts,
    "relation": relations,
    "section_spliter": st.sampled_from(["SECTION", "Section", "Day", "C++"]),
}
"""One strategy for each argument that a row of IFEval may carry."""


@st.composite
def references(draw):
    """Rows as the data set carries them: one to three instructions, unused arguments None."""
    ids = draw(st.lists(st.sampled_from(sorted(CONSTRAINTS)), min_size=1, max_size=3))
    rows = []
    for name in ids:
        used = {field.name for field in fields(CONSTRAINTS[name])}
        rows.append({key: draw(values) if key in used else None for key, values in VALUES.items()})
    return {"instruction_id_list": ids, "kwargs": rows}


pieces = st.sampled_from(
    ["P.S. ", "\n", "\n\n", "***", "******", "*a*", "<<b>>", "[c]", '"', "SECTION 1 ", "* ", "- d\n", "e, f. ",
     "```", "{", '{"g": 1}', "My answer is no.", "हिन्दी ", "你好。", "Dr. ", "\u200b", "#", "é", "3.14 ", "weekend ",
     "Sure:\n"]
)  # fmt: skip
responses = st.text(max_size=60) | st.lists(pieces | st.text(max_size=5), max_size=12).map("".join)


@settings(max_examples=300, deadline=None)
@given(responses, references())
def test_whatever_the_policy_writes_is_scored_and_strict_implies_loose(response, row):
    strict = InstructionsVerifier(partial=True).verify(response, row)
    loose = InstructionsVerifier(mode="loose", partial=True).verify(response, row)
    assert strict.score is not None
    assert loose.score is not None
    assert loose.score >= strict.score
    whole = InstructionsVerifier().verify(response, row)
    assert (whole.score == 1.0) is (strict.score == 1.0)
    assert (whole.status is Status.CORRECT) is (strict.status is Status.CORRECT)
    for one, other in zip(strict.detail.split()[1:], loose.detail.split()[1:], strict=True):
        assert one == other or one.endswith("=fail")


@settings(max_examples=100, deadline=None)
@given(responses, references())
def test_the_same_response_gets_the_same_verdict(response, row):
    found = {str(InstructionsVerifier(mode="loose").verify(response, row)) for _ in range(2)}
    assert len(found) == 1


UNITS = [
    "a", "9 ", "*a ", "`", "<<", "[a", "\nP.S. ", "SECTION 1 ", ". ", "Mr. ", "- a,\n", '"a ', "a-", "\n \n", "你a",
    "! \n",
]  # fmt: skip
KWARGS = {
    "capital_frequency": 3, "capital_relation": "at least", "end_phrase": "all done.", "first_word": "it",
    "forbidden_words": ["no way"], "frequency": 2, "keyword": "a b", "keywords": ["a b", "c"], "language": "de",
    "let_frequency": 2, "let_relation": "less than", "letter": "e", "nth_paragraph": 1, "num_bullets": 2,
    "num_highlights": 2, "num_paragraphs": 2, "num_placeholders": 2, "num_sections": 2, "num_sentences": 2,
    "num_words": 2, "postscript_marker": "P.S.", "prompt_to_repeat": "a a", "relation": "at least",
    "section_spliter": "SECTION",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_time_is_bounded(name):
    row = {
        "instruction_id_list": [name],
        "kwargs": [{field.name: KWARGS[field.name] for field in fields(CONSTRAINTS[name])}],
    }
    noise = random.Random(0)
    soup = "".join(noise.choices("ab .,!?*\n\"'[]<>#-`1é你", k=100_000))
    for text in (soup, *((unit * 100_000)[:100_000] for unit in UNITS)):
        started = time.perf_counter()
        verdict = InstructionsVerifier().verify(text, row)
        assert time.perf_counter() - started < 15, text[:10]
        assert verdict.score is not None
    assert InstructionsVerifier(mode="loose").verify("a b" * MAX_CHARS, row).detail == "too_long"
