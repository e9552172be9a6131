"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from typing import Any

from roll_core.testing.cases import VerifierCases


def _reference(**instructions: dict[str, Any]) -> dict[str, Any]:
    return {
        "instruction_id_list": [name.replace("__", ":") for name in instructions],
        "kwargs": list(instructions.values()),
    }


_TITLE = _reference(
    detectable_format__title={},
    length_constraints__number_sentences={"num_sentences": 3, "relation": "less than"},
    detectable_content__postscript={"postscript_marker": "P.S."},
)
_GERMAN = _reference(language__response_language={"language": "de"}, detectable_format__title={})
_JSON = _reference(detectable_format__json_format={}, keywords__existence={"keywords": ["river"]})
_REPEAT = _reference(
    combination__repeat_prompt={"prompt_to_repeat": "Say hello, please."}, punctuation__no_comma={"language": None}
)

CONFORMANCE = {
    "verifiers/instructions": VerifierCases(
        gold=[
            ("<<Rain>>\n\nIt rains.\n\nP.S. It stops.", _TITLE),
            ("<<Regen>>\nEs regnet heute den ganzen Tag, und wir bleiben zu Hause.", _GERMAN),
            ('```json\n{"place": "the river"}\n```', _JSON),
            ("Say hello, please.\n\nHello there.", _REPEAT),
        ],
        wrong=[
            ("<<Rain>>\n\nIt rains. It pours.\n\nP.S. It stops.", _TITLE),
            ("It rains.\n\nP.S. It stops.", _TITLE),
            ("<<Rain>>\nIt rains all day today, and we stay at home.", _GERMAN),
            ('Here it is: {"place": "the river"}', _JSON),
            ("Say hello, please.\n\nHello, there.", _REPEAT),
        ],
        golden="golden.jsonl",
    ),
}
