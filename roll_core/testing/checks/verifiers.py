"""Checks of `contracts.Verifier`."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
from collections.abc import Sequence
from typing import Any

from roll_core.testing.cases import Pair, VerifierCases, origin_of
from roll_core.testing.child import ChildCrashedError, ChildTimeoutError, answers
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check
from roll_core.types import Status, Verdict

EMPTY = ("", " ", "\n\n\t  \n", "\u200b", "\u00a0")
UNRELATED = (
    "I do not know.",
    "The quick brown fox jumps over the lazy dog, as it always does.",
    "As a language model I would rather talk about the weather in Lisbon.",
)
ODD = (
    "\x00",
    "\ud800 lone surrogate \udfff",
    "\u202eright to left\u202c",
    "e\u0301\u0302\u0303" * 50,
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "١٢٣ ４５６ Ⅷ ½ ²",
    "\\boxed{" * 500,
    "{" * 2000 + "}" * 2000,
    '{"a": ' * 1000,
    "1e999999999",
    "9" * 400 + "**" + "9" * 400,
    "\r\n\x1b[31m\x07\ufeff\uffff",
)
MEGABYTE = 1_000_000


def _verify(verifier: Any, response: str, reference: Any) -> Verdict:
    result = verifier.verify(response, reference)
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    if not isinstance(result, Verdict):
        raise CheckFailed(f"verify({_show(response)}, …) returned {result!r}: return a roll_core Verdict")
    return result


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def _show(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _references(cases: VerifierCases) -> list[Any]:
    return [reference for _, reference in cases.gold][:5]


def _worthless(cases: VerifierCases) -> list[Pair]:
    texts = (*EMPTY, *UNRELATED)
    return [*cases.wrong, *((text, reference) for reference in _references(cases) for text in texts)]


def _must_not_score_one(verifier: Any, pairs: Sequence[Pair], what: str) -> None:
    for response, reference in pairs:
        verdict = _verify(verifier, response, reference)
        if verdict.score is not None and verdict.score >= 1.0:
            raise CheckFailed(f"{what} {_show(response)} scores 1 against reference {reference!r}")


@check("verifiers")
def accepts_gold(subject: Subject) -> None:
    """Every gold answer scores 1."""
    cases = subject.require_cases(VerifierCases)
    verifier = subject.build()
    for response, reference in cases.gold:
        verdict = _verify(verifier, response, reference)
        if verdict.status is not Status.CORRECT or verdict.score != 1.0:
            raise CheckFailed(
                f"gold answer {_show(response)} for reference {reference!r} is '{verdict.status}' with score "
                f"{verdict.score} ({verdict.detail or verdict.reason or 'no detail'})"
            )


@check("verifiers")
def rejects_wrong(subject: Subject) -> None:
    """A wrong answer does not score 1."""
    cases = subject.require_cases(VerifierCases)
    _must_not_score_one(subject.build(), cases.wrong, "the wrong answer")


@check("verifiers")
def rejects_empty(subject: Subject) -> None:
    """Empty and blank text does not score 1."""
    cases = subject.require_cases(VerifierCases)
    _must_not_score_one(subject.build(), [(t, r) for r in _references(cases) for t in EMPTY], "the blank text")


@check("verifiers")
def rejects_unrelated(subject: Subject) -> None:
    """Text that has nothing to do with the task does not score 1."""
    cases = subject.require_cases(VerifierCases)
    _must_not_score_one(subject.build(), [(t, r) for r in _references(cases) for t in UNRELATED], "the unrelated text")


@check("verifiers")
def scores_what_the_policy_does(subject: Subject) -> None:
    """Wrong, empty and unrelated answers carry a score; without one the policy learns to escape."""
    cases = subject.require_cases(VerifierCases)
    verifier = subject.build()
    for response, reference in _worthless(cases):
        verdict = _verify(verifier, response, reference)
        if not verdict.status.is_scored:
            raise CheckFailed(
                f"{_show(response)} got status '{verdict.status}', which carries no score: return Verdict.incorrect "
                "or Verdict.invalid for whatever the policy wrote"
            )


@check("verifiers")
def returns_finite_scores(subject: Subject) -> None:
    """Every score is a finite number in [0, 1]."""
    cases = subject.require_cases(VerifierCases)
    verifier = subject.build()
    for response, reference in [*cases.gold, *_worthless(cases)]:
        score = _verify(verifier, response, reference).score
        if score is not None and not (math.isfinite(score) and 0.0 <= score <= 1.0):
            raise CheckFailed(f"{_show(response)} scores {score!r}: a score is a finite number in [0, 1]")


@check("verifiers")
def is_deterministic(subject: Subject) -> None:
    """The same answer gets the same verdict, twice and from a second instance."""
    cases = subject.require_cases(VerifierCases)
    first, second = subject.build(), subject.build()
    for response, reference in [*cases.gold, *cases.wrong]:
        found = [_verify(v, response, reference) for v in (first, first, second)]
        keys = {(v.status, repr(v.score), v.answer, v.detail) for v in found}
        if len(keys) > 1:
            raise CheckFailed(f"{_show(response)} got different verdicts: {sorted(map(str, keys))}")


@check("verifiers")
def is_picklable(subject: Subject) -> None:
    """The verifier survives pickling, since the scoring pool runs it in worker processes."""
    verifier = subject.build()
    try:
        copy = pickle.loads(pickle.dumps(verifier))  # noqa: S301  # made on the line itself
    except Exception as error:
        raise CheckFailed(
            f"{type(verifier).__name__} cannot be pickled ({error}): keep clients and handles out of its attributes, "
            "or make them on first use and drop them in __getstate__"
        ) from error
    if isinstance(subject.cases, VerifierCases):
        for response, reference in subject.cases.gold:
            if _verify(copy, response, reference).score != _verify(verifier, response, reference).score:
                raise CheckFailed(f"after pickling, {_show(response)} scores differently")


@check("verifiers")
def survives_odd_text(subject: Subject) -> None:
    """Odd Unicode, control characters and deep nesting neither raise nor hang."""
    cases = subject.require_cases(VerifierCases)
    pairs = [(text, _references(cases)[0]) for text in ODD] if cases.gold else []
    _judge_in_child(subject, pairs, cases.limit_s, "return Verdict.invalid for text you cannot read")


@check("verifiers")
def bounds_its_time(subject: Subject) -> None:
    """A response of 1 MB gets its verdict in time."""
    cases = subject.require_cases(VerifierCases)
    if not cases.gold:
        raise CheckSkipped("no gold case")
    gold, reference = cases.gold[0]
    units = ("a", "9", "(", "\\boxed{", "1+", " ", f"{gold}\n")
    pairs = [((unit * (MEGABYTE // len(unit) + 1))[:MEGABYTE], reference) for unit in units]
    _judge_in_child(subject, pairs, cases.limit_s, "bound the length you look at before anything that is not linear")


def _judge_in_child(subject: Subject, pairs: Sequence[Pair], limit_s: float, advice: str) -> None:
    verifier = subject.build()
    try:
        pickle.dumps(verifier)
    except Exception as error:
        raise CheckSkipped("it cannot be pickled, hence not run in a child process (see is_picklable)") from error
    done = 0
    try:
        with answers("judge", (verifier, list(pairs)), limit_s=limit_s) as verdicts:
            for answer in verdicts:
                response = _show(pairs[done][0])
                if "error" in answer:
                    raise CheckFailed(f"verify({response}) raised {answer['error']}: {advice}")
                done += 1
    except ChildTimeoutError:
        raise CheckFailed(f"verify({_show(pairs[done][0])}) took more than {limit_s:g} s: {advice}") from None
    except ChildCrashedError as error:
        raise CheckFailed(f"verify({_show(pairs[done][0])}) ended the process: {error}") from error


@check("verifiers")
def imports_no_tensor_library(subject: Subject) -> None:
    """Importing the verifier loads no torch, jax, tensorflow, transformers, ray or vllm."""
    factory = origin_of(subject.component)
    if "<" in factory or "." in factory.partition(":")[2]:
        raise CheckSkipped("its code is local to a function or class, which a fresh interpreter cannot import")
    try:
        with answers("imports", factory, limit_s=10.0) as found:
            heavy = next(found)
    except ChildCrashedError as error:
        raise CheckFailed(f"'{factory}' cannot be imported in a fresh interpreter: {error}") from error
    if heavy:
        raise CheckFailed(
            f"importing '{factory}' loads {', '.join(heavy)}: a verifier runs in light worker processes; import it "
            "inside the function that needs it, or do without"
        )
