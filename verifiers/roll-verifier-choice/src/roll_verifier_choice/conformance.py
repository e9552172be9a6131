"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from roll_core.testing.cases import VerifierCases

_CITY = {"answer": "B", "choices": ["London", "Paris", "Berlin", "Rome"]}
_METAL = {"answerKey": "2", "choices": {"label": ["1", "2"], "text": ["wood", "copper"]}}

CONFORMANCE = {
    "verifiers/choice": VerifierCases(
        gold=[
            ("The Seine runs through it, so the answer is \\boxed{B}.", _CITY),
            ("The answer is **B) Paris**.", _CITY),
            ("Paris", _CITY),
            ("<think>Is it 1?</think> Metals conduct. Answer: 2", _METAL),
            ("(C)", "C"),
        ],
        wrong=[
            ("The answer is C.", _CITY),
            ("The answer is B) London.", _CITY),
            ("The answer is A or B.", _CITY),
            ("The answer is not B.", _CITY),
            ("<think>The answer is B.</think> I cannot tell.", _CITY),
            ("A dog is an animal.", "A"),
        ],
        golden="golden.jsonl",
    )
}
