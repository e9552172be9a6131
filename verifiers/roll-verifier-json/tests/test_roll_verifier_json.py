from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.types import Status
from roll_verifier_json.fields import JsonFieldsVerifier
from roll_verifier_json.words import WordLimitVerifier

ADA = {"name": "Ada", "age": 36, "tags": ["x", "y"], "pos": {"lat": 1.5, "ok": True, "note": None}}
TEXT = json.dumps(ADA)


def fields(response, reference=None, **options):
    return JsonFieldsVerifier(**options).verify(response, ADA if reference is None else reference)


@pytest.mark.parametrize(
    ("response", "status", "detail"),
    [
        (TEXT, Status.CORRECT, "equal"),
        (f"Sure:\n```json\n{TEXT}\n```\nDone.", Status.CORRECT, "equal"),
        (f"<think>{{}}</think>{TEXT}", Status.CORRECT, "equal"),
        (f"I use {{braces}} in prose. {TEXT}", Status.CORRECT, "equal"),
        (TEXT + ' {"name": "Bob"}', Status.CORRECT, "equal"),
        ('{"name": "Bob"} ' + TEXT, Status.INCORRECT, "missing_key"),
        (TEXT.replace("36", '"36"'), Status.INCORRECT, "wrong_value"),
        (TEXT.replace("36", "36.0"), Status.CORRECT, "equal"),
        (TEXT.replace("true", "1"), Status.INCORRECT, "wrong_value"),
        (TEXT.replace("null", '"null"'), Status.INCORRECT, "wrong_value"),
        (TEXT.replace('"y"]', '"y", "z"]'), Status.INCORRECT, "wrong_value"),
        (TEXT.replace('["x", "y"]', '["y", "x"]'), Status.INCORRECT, "wrong_value"),
        (TEXT.replace("Ada", "ada"), Status.INCORRECT, "wrong_value"),
        (TEXT[:-1] + ', "more": 1}', Status.INCORRECT, "extra_key"),
        (TEXT.replace('"lat": 1.5', '"lat": 1.5, "more": 1'), Status.INCORRECT, "wrong_value"),
        ('{"name": "Ada"}', Status.INCORRECT, "missing_key"),
        ("{}", Status.INCORRECT, "missing_key"),
        (TEXT[:-1] + ', "age": 36}', Status.INVALID, "no_object"),
        (TEXT[:-1] + ', "n": NaN}', Status.INVALID, "no_object"),
        (TEXT[:-1] + ', "n": Infinity}', Status.INVALID, "no_object"),
        (TEXT[:-1] + ', "n": 1e999}', Status.INVALID, "no_object"),
        (TEXT[:-1], Status.INVALID, "no_object"),
        (TEXT.replace('"', "'"), Status.INVALID, "no_object"),
        (f"[{TEXT}]", Status.CORRECT, "equal"),
        ('{"wrapped": ' + TEXT, Status.INVALID, "no_object"),
        (f"<think>{TEXT}", Status.INVALID, "no_object"),
        ("", Status.INVALID, "no_object"),
        ("no braces here", Status.INVALID, "no_object"),
        ('{"a":' * 100_000, Status.INVALID, "no_object"),
        ("{" * 300_000, Status.INVALID, "no_object"),
    ],
)
def test_json_fields(response, status, detail):
    verdict = fields(response)
    assert (verdict.status, verdict.detail) == (status, detail), verdict
    assert verdict.score == (1.0 if status is Status.CORRECT else 0.0)


def test_strict_wants_nothing_around():
    assert fields(f"  {TEXT}\n", strict=True).score == 1.0
    for response in (f"```json\n{TEXT}\n```", TEXT + ".", f"[{TEXT}]"):
        assert fields(response, strict=True).status is Status.INVALID


def test_extra_keys_can_be_allowed_at_every_level():
    more = TEXT[:-1] + ', "more": 1}'
    deep = TEXT.replace('"lat": 1.5', '"lat": 1.5, "more": 1')
    assert [fields(text, extra_keys=True).score for text in (more, deep)] == [1.0, 1.0]


def test_types_can_be_ignored():
    loose = {"types": False}
    reference = {"n": 30, "b": True, "s": "Yes", "z": None}
    assert fields('{"n": "30", "b": "true", "s": "yes ", "z": "null"}', reference, **loose).score == 1.0
    assert fields('{"n": "30.0", "b": true, "s": "Yes", "z": null}', reference, **loose).score == 1.0
    assert fields('{"n": "31", "b": true, "s": "Yes", "z": null}', reference, **loose).score == 0.0
    assert fields('{"n": [30], "b": {}, "s": "Yes", "z": null}', reference, **loose).score == 0.0


def test_partial_scores_the_share_of_right_fields():
    assert fields('{"a": 1, "b": 3}', {"a": 1, "b": 2}, partial=True).score == 0.5
    assert fields('{"a": 1}', {"a": 1, "b": 2}, partial=True).score == 0.5
    assert fields('{"a": 1, "b": 2, "c": 3}', {"a": 1, "b": 2}, partial=True).score == pytest.approx(2 / 3)
    assert fields('{"a": 1, "b": 2}', {"a": 1, "b": 2}, partial=True).status is Status.CORRECT
    assert fields('{"c": 1}', {"a": 1}, partial=True).score == 0.0


@pytest.mark.parametrize("reference", [None, [1], 5, "text", "[1]", '{"a": 1, "a": 2}'])
def test_a_reference_without_fields_is_undecided(reference):
    verdict = JsonFieldsVerifier().verify(TEXT, reference)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.UNDECIDED, None, "bad_reference")


def test_a_reference_may_be_json_text():
    assert fields(TEXT, TEXT).score == 1.0


scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


@given(objects, st.booleans(), st.booleans())
def test_an_object_equals_itself_in_any_order_and_dress(reference, types, strict):
    text = json.dumps(dict(reversed(reference.items())), indent=None if strict else 2)
    response = text if strict else f"The object is\n```\n{text}\n```"
    assert fields(response, reference, types=types, strict=strict).score == 1.0


@given(objects, st.text(max_size=5), values)
def test_a_changed_field_is_never_right(reference, key, value):
    changed = {**reference, key: value}
    right = key in reference and json.dumps(reference[key], sort_keys=True) == json.dumps(value, sort_keys=True)
    same_number = key in reference and type(reference[key]) is not type(value)
    if not same_number and changed != reference:
        assert fields(json.dumps(changed), reference).score == 0.0 or right


SOUP = ['{"a":', "}", "{", "[", "1", '"', "\\u", ",", ":"]


@settings(max_examples=200)
@given(
    st.text(max_size=40) | st.lists(st.sampled_from(['{"a":', "}", "{", "[", "1", '"', "\\u", ",", ":"])).map("".join)
)
def test_never_raises_and_always_scores_the_policy(text):
    for options in ({}, {"strict": True}, {"types": False, "partial": True}):
        assert fields(text, {"a": 1}, **options).score is not None
    assert WordLimitVerifier().verify(text, {"max_words": 4}).score is not None


def test_time_is_bounded():
    started = time.perf_counter()
    for text in (
        '{"a": ' * 30_000,
        '{"a": [' + "1," * 90_000,
        "{ " * 90_000,
        '{"' + "x" * 190_000,
        "[" * 190_000 + "{",
    ):
        fields(text)
        fields(text, strict=True)
    assert time.perf_counter() - started < 20


# --- word_limit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "reference", "status", "detail"),
    [
        ("one two three", {"max_words": 3}, Status.CORRECT, "within"),
        ("one two three four", {"max_words": 3}, Status.INCORRECT, "too_long"),
        ("one two", {"max_words": 3}, Status.INCORRECT, "too_short"),
        ("one", {"max_words": 3, "min_words": 1}, Status.CORRECT, "within"),
        ("one two three", 3, Status.CORRECT, "within"),
        ("<think>a b c d e</think> one two three", {"max_words": 3}, Status.CORRECT, "within"),
        ("<think>one two three", {"max_words": 3}, Status.INVALID, "empty"),
        ("", {"max_words": 3}, Status.INVALID, "empty"),
        (" \n", {"max_words": 3, "min_words": 0}, Status.INVALID, "empty"),
        ("- - -", {"max_words": 3}, Status.INVALID, "empty"),
        ("one two three", {"max_words": "3"}, Status.UNDECIDED, "bad_reference"),
        ("one two three", {"max_words": 3, "min_words": 4}, Status.UNDECIDED, "bad_reference"),
        ("one two three", {"max_words": True}, Status.UNDECIDED, "bad_reference"),
        ("one two three", {}, Status.UNDECIDED, "bad_reference"),
        ("one two three", None, Status.UNDECIDED, "bad_reference"),
        ("a b c", {"max_words": 2}, Status.INCORRECT, "too_long"),
    ],
)
def test_word_limit(response, reference, status, detail):
    verifier = WordLimitVerifier(min_words=1) if reference == {"max_words": 2} else WordLimitVerifier()
    verdict = verifier.verify(response, reference)
    assert (verdict.status, verdict.detail) == (status, detail), verdict
