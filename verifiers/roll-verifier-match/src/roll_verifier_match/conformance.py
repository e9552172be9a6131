"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from roll_core.testing.cases import VerifierCases

_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
_DATE = r"\d{4}-\d{2}-\d{2}"

CONFORMANCE = {
    "verifiers/exact": VerifierCases(
        gold=[
            ("Paris", "Paris"),
            ("<think>London?</think> Paris\n", "Paris"),
            ("42", 42),
            ("GB", {"any_of": ["UK", "GB"]}),
        ],
        wrong=[("paris", "Paris"), ("Paris or London", "Paris"), ("<think>Paris</think>", "Paris"), ("42.0", 42)],
        golden="golden_exact.jsonl",
    ),
    "verifiers/regex": VerifierCases(
        gold=[("2024-01-31", _DATE), ("yes", "(?i)YES|NO"), ("abcabc", r"(abc)\1")],
        wrong=[("on 2024-01-31", _DATE), ("maybe", "(?i)YES|NO"), ("a" * 40 + "!", "(a|a)*b")],
        golden="golden_regex.jsonl",
    ),
    "verifiers/json_schema": VerifierCases(
        gold=[
            ('{"name": "Ada", "age": 36}', _PERSON),
            ('Here it is:\n```json\n{"name": "Ada"}\n```', _PERSON),
            ("The list is [1, 2].", {"type": "array", "items": {"type": "integer"}}),
        ],
        wrong=[
            ('{"name": "Ada", "age": "36"}', _PERSON),
            ('{"name": "Ada", "born": 1815}', _PERSON),
            ('{"name": "Bob", "name": "Ada"}', _PERSON),
            ('{"name": "Ada"', _PERSON),
        ],
        golden="golden_json_schema.jsonl",
    ),
}
