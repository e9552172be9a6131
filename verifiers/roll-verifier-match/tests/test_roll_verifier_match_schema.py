from __future__ import annotations

import json
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.types import Status
from roll_verifier_match.formats import format_checker
from roll_verifier_match.schema import JsonSchemaVerifier

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name"],
    "additionalProperties": False,
}
NEST = {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}


def judge(response, schema=PERSON, **options):
    return JsonSchemaVerifier(**options).verify(response, schema)


@pytest.mark.parametrize(
    ("response", "status", "detail"),
    [
        ('{"name": "Ada"}', Status.CORRECT, "valid"),
        ('{"name": 1}', Status.INCORRECT, "schema /name"),
        ('{"name": "Ada", "tags": ["x", 2]}', Status.INCORRECT, "schema /tags/1"),
        ('{"name": "Ada", "a/b~": 2}', Status.INCORRECT, "schema /a~1b~0"),
        ("{}", Status.INCORRECT, "schema"),
        ("", Status.INVALID, "no_json"),
        ("name: Ada", Status.INVALID, "no_json"),
        ('{"name": "Ada"', Status.INVALID, "broken_json"),
        ('{"name": "a", "name": "b"}', Status.INVALID, "duplicate_key"),
        ('{"name": NaN}', Status.INVALID, "bad_number"),
        ('{"name": ' + "9" * 500 + "}", Status.INVALID, "bad_number"),
        ('{"name": ' * 100_000, Status.INVALID, "too_long"),
        ('{"name": ' * 10_000, Status.INVALID, "too_deep"),
        ('{"name": ' + "[" * 40 + "]" * 40 + "}", Status.INVALID, "too_deep"),
        ('{"name": [' + "1," * 20_000 + "1]}", Status.INVALID, "too_large"),
    ],
)
def test_statuses_and_details(response, status, detail):
    verdict = judge(response)
    assert (verdict.status, verdict.detail) == (status, detail)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        [],
        "{",
        "[]",
        {"type": "thing"},
        {"pattern": "("},
        {"patternProperties": {"(": {}}},
        {"$ref": "https://example.org/schema.json"},
        {"properties": {"never": {"$ref": "other.json#/x"}}},
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$schema": "http://json-schema.org/draft-03/schema#"},
        {"$schema": "https://example.org/dialect"},
        {"x": float("nan")},
        {"x": object()},
    ],
)
def test_a_broken_schema_is_undecided_whatever_the_response(schema):
    for response in ('{"name": "Ada"}', '{"other": 1}'):
        verdict = judge(response, schema)
        assert (verdict.status, verdict.score, verdict.detail) == (Status.UNDECIDED, None, "bad_schema")


def test_nothing_is_fetched(monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a connection was opened"))
    assert judge("{}", {"$ref": "http://127.0.0.1/schema.json"}).detail == "bad_schema"


def test_the_default_schema_stands_in_for_a_missing_reference():
    assert judge('{"name": "Ada"}', None, default_schema=PERSON).score == 1.0
    assert judge('{"name": "Ada"}', {"required": ["x"]}, default_schema=PERSON).score == 0.0
    with pytest.raises(ValueError, match="default_schema"):
        JsonSchemaVerifier(default_schema={"type": "thing"})
    with pytest.raises(ValueError, match="positive"):
        JsonSchemaVerifier(max_depth=0)


def test_recursive_schemas_work_to_the_depth_limit():
    deepest = '{"n": ' * 31 + "{}" + "}" * 31
    assert judge(deepest, NEST).score == 1.0
    assert judge('{"n": ' * 33 + "{}" + "}" * 33, NEST).detail == "too_deep"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"k": {"pattern": "^(a|a)*$"}}},
        {"propertyNames": {"pattern": "^(a|a)*$"}},
        {"patternProperties": {"^(a|a)*$": True}},
        {"patternProperties": {"^(a|a)*$": True}, "additionalProperties": False},
        {"unevaluatedProperties": False, "patternProperties": {"^(a|a)*$": True}},
    ],
)
def test_a_text_made_to_hang_a_pattern_scores_nothing(schema):
    evil = "a" * 50 + "!"
    started = time.perf_counter()
    verdict = judge(json.dumps({evil: 1, "k": evil}), schema)
    assert (verdict.score, verdict.detail) == (0.0, "timeout")
    assert time.perf_counter() - started < 20


def test_patterns_share_one_time_limit():
    slow = {"k" + str(i) + "a" * 17 + "!": 1 for i in range(2000)}
    started = time.perf_counter()
    judge(json.dumps(slow), {"patternProperties": {"(a|aa)+$": True}})
    assert time.perf_counter() - started < 20


def test_numbers_are_decimals_as_written():
    cent = {"properties": {"p": {"multipleOf": 0.01}}}
    assert [judge(f'{{"p": {p}}}', cent).score for p in ("19.99", "0.07", "1e308", "9" * 390, "19.999")] == [
        1,
        1,
        1,
        1,
        0,
    ]
    unique = {"properties": {"a": {"uniqueItems": True}}}
    assert [
        judge(f'{{"a": {a}}}', unique).score
        for a in ("[1, true]", "[1, 1.0]", '[{"x": 1}, {"x": 1.0}]', "[0, false, null]")
    ] == [1, 0, 0, 1]


def test_unevaluated_properties_follow_what_holds():
    schema = {
        "properties": {"a": True},
        "allOf": [{"patternProperties": {"^b": True}}],
        "anyOf": [{"required": ["c"], "properties": {"c": True}}, True],
        "if": {"required": ["d"]},
        "then": {"properties": {"d": True}},
        "dependentSchemas": {"a": {"properties": {"e": True}}},
        "unevaluatedProperties": False,
    }
    allowed = ['{"a": 1}', '{"b1": 1}', '{"c": 1}', '{"d": 1}', '{"a": 1, "e": 1}']
    assert [judge(text, schema).score for text in allowed] == [1.0] * 5
    assert [judge(text, schema).detail for text in ('{"e": 1}', '{"x": 1}')] == ["schema /e", "schema /x"]


FORMATS = {
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9", "٢٠٢٤-٠٢-٢٩", "20240229"]),
    "time": (["12:00:00Z", "23:59:60Z", "15:59:60-08:00", "12:00:00.5+01:30"], ["12:00:00", "24:00:00Z", "22:59:60Z"]),
    "date-time": (["2024-01-31T12:00:00Z"], ["2024-01-31 12:00:00Z", "2024-01-31", "T12:00:00Z"]),
    "duration": (["P1Y2M3DT4H5M6S", "PT1S", "P2W"], ["P", "PT", "1Y", "P1W2D", "P1S"]),
    "email": (["a.b+c@example.org", "x@localhost"], ["a@", "@b", "a b@c.d", "a..b@c.d", ".a@b.c", "a@b@c"]),
    "hostname": (["a-b.example.org"], ["-a.org", "a_b.org", "a..b", "a." + "x" * 64, ""]),
    "ipv4": (["10.0.0.1"], ["10.0.0", "10.0.0.256", "010.0.0.1", "１.2.3.4"]),
    "ipv6": (["::1", "2001:db8::1"], ["::1%eth0", "1::2::3", "12345::"]),
    "uuid": (["123E4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "x"]),
    "uri": (["https://x.org/a?b=c#d", "mailto:a@b.c", "http://[::1]:80/"], ["x.org", "//x.org", "http://a b", "ä:b"]),
    "uri-reference": (["/a/b", "x.org", "//x.org/a", "#f", "", "a/b:c"], ["a b", "1a:b", "\\x", "%zz"]),
    "json-pointer": (["", "/a~0b/~1"], ["a", "/~2", "/~"]),
    "relative-json-pointer": (["0", "1/a", "0#"], ["01", "/a", "-1"]),
    "regex": (["a+", "(?=x)"], ["(", "a**"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name):
    checker = format_checker()
    good, bad = FORMATS[name]
    assert [text for text in good if not checker.conforms(text, name)] == []
    assert [text for text in [*bad, "x" * 3000 + "\n"] if checker.conforms(text, name)] == []
    assert checker.conforms(5, name)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
SOUP = [
    '{"name":',
    '"Ada"',
    "}",
    "{",
    "[",
    "]",
    "1",
    '"',
    "\\u",
    ",",
    ":",
    "```",
    "```json\n",
    "\n",
    "<think>",
    "</think>",
    "NaN",
]


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=40) | st.lists(st.sampled_from(SOUP), max_size=12).map("".join),
    st.sampled_from(["first", "fenced", "strict"]),
)
def test_never_raises_and_always_scores(text, find):
    verdict = judge(text, find=find)
    assert verdict.score is not None
    assert judge(text, find=find) == verdict


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_a_document_is_valid_under_its_own_const_in_any_dress(document):
    schema, text = {"const": document}, json.dumps(document)
    assert judge(text, schema, find="strict").score == 1.0
    assert judge(f"Here:\n```json\n{text}\n```\n", schema, find="fenced").score == 1.0
    assert judge(f"Here: {text}.", schema).score == 1.0
    assert judge(json.dumps({**document, "more of it": 1}), schema).score == 0.0


@pytest.mark.parametrize("unit", ["a", "{", '{"a":', "[", "```\n", "{ ", '{"a":[', "<think>", "\\u", '"'])
def test_a_megabyte_takes_no_time(unit):
    started = time.perf_counter()
    for size in (150_000, 1_000_000):
        for find in ("first", "fenced", "strict"):
            judge(unit * (size // len(unit)), find=find)
    assert time.perf_counter() - started < 20
