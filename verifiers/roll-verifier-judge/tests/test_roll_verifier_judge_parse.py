from __future__ import annotations

import importlib.resources
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core import ConfigError
from roll_verifier_judge import parse_reply, read_scale, schema_of

TABLE = (importlib.resources.files("roll_verifier_judge") / "golden.jsonl").read_text(encoding="utf-8")
ROWS = [row for row in map(json.loads, TABLE.splitlines()) if "scale" in row.get("options", {})]
TEN = {"type": "number", "min": 0, "max": 10}
YES_NO = {"type": "label", "labels": ["yes", "no"]}
MATCH = {"type": "bool", "key": "match"}
RUBRIC = {"type": "rubric", "criteria": {"cites": ["no", "yes"], "tone": ["poor", "good"]}}


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_the_golden_replies_are_read_right(kind):
    rows = [row for row in ROWS if row["kind"] == kind and not row.get("disputed")]
    assert rows
    for row in rows:
        parsed = parse_reply(row["response"], row["options"]["scale"])
        expected = ("ok", row["reference"]) if row["expected"] else ("invalid", None)
        assert (parsed.status, parsed.value) == expected, (row["id"], row["response"], parsed)
        assert bool(parsed.reason) is not parsed.is_ok


def test_there_are_enough_rows():
    assert len(ROWS) > 550
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_reasons_tell_what_was_wrong():
    reasons = {
        "Score: 11": "out_of_range",
        "Score: 7 or 8": "two_values",
        "Score: 7/5": "other_scale",
        "Score:": "no_verdict",
        "I'm sorry, but I can't rate this.": "refusal",
        '{"score": 3} {"score": 4}': "verdicts_differ",
        "Score: ~7": "not_a_number",
        "Clarity score: 9\nAccuracy score: 4": "several_aspects",
        "x" * 100_001: "too_long",
    }
    assert {text: parse_reply(text, TEN).reason for text in reasons} == reasons


def test_labels_come_back_as_declared():
    assert parse_reply("grade: c", {"type": "label", "labels": ["C", "I"]}).value == "C"
    assert parse_reply("PARTLY RIGHT", {"type": "label", "labels": ["partly right", "wrong"]}).value == "partly right"


@pytest.mark.parametrize(
    "scale",
    [
        {},
        {"type": "stars"},
        {"type": "number", "min": 0},
        {"type": "number", "min": 10, "max": 0},
        {"type": "number", "min": 0, "max": float("inf")},
        {"type": "number", "min": "0", "max": 10},
        {"type": "number", "min": 0, "max": 10, "step": 1},
        {"type": "bool"},
        {"type": "label", "labels": ["yes"]},
        {"type": "label", "labels": ["yes", "YES"]},
        {"type": "rubric", "criteria": {}},
        {"type": "rubric", "criteria": {"a": ["yes", "no"], "A": ["yes", "no"]}},
    ],
)
def test_a_malformed_scale_is_a_config_error(scale):
    with pytest.raises(ConfigError):
        read_scale(scale)


def test_schemas_put_the_verdict_last():
    for scale, last in ((TEN, "score"), (MATCH, "match"), (YES_NO, "verdict")):
        schema = schema_of(read_scale(scale))
        assert list(schema["properties"]) == ["reasoning", last]
        assert schema["required"] == ["reasoning", last]
    entry = schema_of(read_scale(RUBRIC))["properties"]["verdicts"]["items"]["anyOf"][0]
    assert list(entry["properties"]) == ["name", "reasoning", "verdict"]


WORDS = st.sampled_from(
    ["Score", ":", " ", "\n", "7", "8.5", "11", "/", "10", "or", "is", "of", "the", "yes", "no", "Verdict", "[[", "]]",
     "**", "\\boxed{", "}", '{"score": ', '{"match": ', "true", '"', "'", "<think>", "</think>", "```", "评分",
     "\uff1a", "%", "-", ",", "<score>", "</score>", "\u200b", "\uff08", "not", "because", "{", "[", "(", ">", "GRADE",
     "7-8", "nan", "\u202e", "\x00"]
)  # fmt: skip
TEXTS = st.text(max_size=60) | st.lists(WORDS, max_size=25).map("".join) | st.lists(WORDS, max_size=20).map(" ".join)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_any_text_is_read_without_an_exception_and_within_its_scale(text):
    number = parse_reply(text, TEN)
    assert number.value is None if not number.is_ok else 0 <= number.value <= 10
    assert parse_reply(text, YES_NO).value in (None, "yes", "no")
    assert parse_reply(text, MATCH).value in (None, True, False)
    rubric = parse_reply(text, RUBRIC)
    assert rubric.value is None or set(rubric.value) == {"cites", "tone"}


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(0, 10))
def test_a_score_on_a_last_line_of_its_own_is_read_whatever_was_said_before(before, score):
    text = f"{before.replace('<think>', '')}\n\n\nScore: {score}"
    if not any(mark in before for mark in ("{", "[THINK", "<score>", "```", "~~~", "'", '"', "`", "\u202e")):
        found = parse_reply(f"</think>{text}", TEN)
        assert found.value == score or found.reason == "verdicts_differ", found


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10),
    st.sampled_from(["{}", "{}\n", "**{}**", "<think>Score: 3</think>{}", "\ufeff{}", "{}<|im_end|>"]),
)
def test_wrappers_change_nothing(score, wrapper):
    for said in (f"Score: {score}", f'{{"score": {score}}}', f"[[{score}]]", str(score)):
        assert parse_reply(wrapper.replace("{}", said), TEN).value == score


def test_time_is_bounded():
    units = [
        "a",
        "(",
        "{",
        "[[",
        "\\boxed{",
        "score: ",
        "score of a b c ",
        "'",
        "`",
        "```\n",
        '{"a":',
        "7 or ",
        "score (",
        "评分",
    ]
    units += ["Score: 7\n", '{"score": 7}', "<score>", "is ", "\u200b", "**a**\n7\n", "<think>", "not a score "]
    for unit in units:
        text = (unit * 30_000)[:30_000]
        for scale in (TEN, YES_NO, MATCH, RUBRIC):
            started = time.perf_counter()
            parse_reply(text, scale)
            assert time.perf_counter() - started < 15, (unit, scale)
