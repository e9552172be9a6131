"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from roll_core.testing.cases import VerifierCases

_PERSON = {"name": "Ada", "age": 36}

CONFORMANCE = {
    "verifiers/json_fields": VerifierCases(
        gold=[
            ('{"name": "Ada", "age": 36}', _PERSON),
            ('Here it is:\n```json\n{"age": 36, "name": "Ada"}\n```', _PERSON),
            ('{"tags": ["a", "b"], "pos": {"x": 1}}', {"tags": ["a", "b"], "pos": {"x": 1}}),
        ],
        wrong=[
            ('{"name": "Ada", "age": "36"}', _PERSON),
            ('{"name": "Ada"}', _PERSON),
            ('{"name": "Ada", "age": 36, "born": 1815}', _PERSON),
            ('{"name": "Bob", "name": "Ada", "age": 36}', _PERSON),
            ('{"name": "Ada", "age": 36', _PERSON),
        ],
        golden="golden_json_fields.jsonl",
    ),
    "verifiers/word_limit": VerifierCases(
        gold=[("One short sentence.", {"max_words": 3}), ("Yes.", {"max_words": 2, "min_words": 1})],
        wrong=[
            ("This sentence is longer.", {"max_words": 3}),
            ("Too short.", {"max_words": 3}),
            ("... ... ...", {"max_words": 3}),
        ],
        golden="golden_word_limit.jsonl",
    ),
}
