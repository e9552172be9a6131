"""`MathVerifier`: the component."""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_math.answers.extract import Extraction, Mode, extract
from roll_verifier_math.bounds import MAX_ANSWER_CHARS, TooCostlyError, metered
from roll_verifier_math.numbers import plain_number
from roll_verifier_math.reading.choice import same_choice

if TYPE_CHECKING:
    from roll_verifier_math.reading.read import Reading

_MAX_REFERENCE_BITS = 3_000
_NOTHING = re.compile(r"\\text\s*\{\s*\}|[\s{}()\[\]$\\.,;:*_`?-]")
_SQUEEZED = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class MathVerifier:
    r"""Accepts a response whose final answer equals the reference as mathematics.

    * `CORRECT`: equal; `detail` names the stage that found it: "identical", "exact", "choice", "words", "date", "base",
      "modular", "structure", "region", "constant", "symbolic" (proved), "rounded" or "numeric" (80 digits agree at
      every point tried, without a proof).
    * `INCORRECT`: not equal, "unreadable", or more work than the limits allow ("too_costly") while the reference is
      simple.
    * `INVALID`: no answer was given ("no_answer"), or its text is beyond the bounds ("out_of_bounds").
    * `UNDECIDED`: the reference itself cannot be read, and the answer is not the same text.

    Args:
        extract: where the answer is looked for: "boxed" (the last `\boxed{}`), "last" (the last formula or number),
            "auto" (box, `<answer>` tag, "the answer is", last number).
        form: "response" for whole replies, "answer" when the response is the bare answer already.
        rounded: whether decimal references are rounded values: then an answer matches that rounds to the reference,
            to as many digits as the reference shows.
        prove: whether sympy may prove, in a child process, what is known numerically. Only `detail` depends on it.
    """

    extract: Mode = "auto"
    form: Literal["response", "answer"] = "response"
    rounded: bool = False
    prove: bool = True

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
    ) -> Verdict:
        """Judge one response.

        Args:
            response: what the policy wrote.
            reference: the right answer, a string or a number.
            prompt: not looked at.
            rollout: not looked at.
        """
        gold = _reference_text(reference)
        if gold is None:
            reason = f"the reference is no text and no finite number of reasonable size: {type(reference).__name__}"
            return Verdict.undecided(reason, detail="bad_reference")
        found = Extraction(response.strip(), "given") if self.form == "answer" else extract(response, self.extract)
        if found is None or not found.text:
            return Verdict.invalid("no answer was found", detail="no_answer")
        if found.parts:
            verdicts = [judge(gold, part, rounded=self.rounded, prove=self.prove) for part in found.parts]
            if all(verdict.score == 1.0 for verdict in verdicts):  # the same value, written in several ways
                return verdicts[-1]
        return judge(gold, found.text, rounded=self.rounded, prove=self.prove)


def judge(gold: str, answer: str, *, rounded: bool = False, prove: bool = True) -> Verdict:
    """Compare two bare answers.

    Args:
        gold: the reference.
        answer: what was answered.
        rounded: whether a decimal reference is a rounded value.
        prove: whether a child process may look for a proof.
    """
    right = plain_number(gold)
    given = None if right is None else plain_number(answer)
    if given is not None and (right == given or not rounded):
        return _verdict(right == given, answer, "exact")
    shown = answer[:MAX_ANSWER_CHARS]
    if gold == answer or gold.strip() == answer.strip():
        return _identical(gold, shown)
    if (same := same_choice(gold, answer)) is not None:
        return _verdict(same, shown, "choice")
    return _judge_trees(gold, answer, shown, rounded=rounded, prove=prove)


def _judge_trees(  # noqa: PLR0911 - one status a line
    gold: str, answer: str, shown: str, *, rounded: bool, prove: bool
) -> Verdict:
    from roll_verifier_math.reading.read import read, read_reference

    right, given = read_reference(gold), read(answer)
    if given.is_out_of_bounds:
        return Verdict.invalid(given.refusal, answer=shown, detail="out_of_bounds")
    if not _NOTHING.sub("", given.text) and (given.node is None or given.has_notation):
        return Verdict.invalid("the answer is empty", answer=shown, detail="no_answer")
    if _NOTHING.sub("", right.text) and _SQUEEZED.sub("", right.text) == _SQUEEZED.sub("", given.text):
        return Verdict.correct(shown, detail="identical")
    if (same := same_choice(right.text, given.text)) is not None:
        return _verdict(same, shown, "choice")
    if right.node is None:
        reason = f"the reference {gold!r:.100} cannot be read: {right.refusal}"
        return Verdict.undecided(reason, answer=shown, detail="bad_reference")
    if given.node is None:
        return Verdict.incorrect(shown, detail="unreadable", reason=given.refusal)
    with metered(prove=prove):
        return _compared(right, given, shown, rounded=rounded)


def _compared(  # noqa: PLR0911 - one status a line
    right: Reading, given: Reading, shown: str, *, rounded: bool
) -> Verdict:
    from roll_verifier_math.comparing.compare import compare
    from roll_verifier_math.comparing.references import FAILURES, aligned, is_broken, is_costly, rounds_to

    gold, answer = right.node, given.node
    if gold is None or answer is None:
        raise TypeError("compared what was not read")
    try:
        outcome = compare(*aligned(gold, answer, right.text, given.text))
        if outcome.is_equal:
            return Verdict.correct(shown, detail=outcome.stage)
        if rounded and rounds_to(right.text, gold, answer):
            return Verdict.correct(shown, detail="rounded")
    except TooCostlyError as error:
        if is_costly(gold):
            return Verdict.undecided(f"the reference is too large: {error}", answer=shown, detail="too_costly")
        return Verdict.incorrect(shown, detail="too_costly", reason=str(error))
    except FAILURES as error:
        if is_broken(gold):
            return Verdict.undecided(f"the reference cannot be compared: {error}", answer=shown, detail="bad_reference")
        return Verdict.incorrect(shown, detail="unreadable", reason=f"cannot be compared: {error}")
    if right.has_notation:
        reason = "the reference has notation that is compared only as it is written"
        return Verdict.undecided(reason, answer=shown, detail="bad_reference")
    if given.has_notation:
        return Verdict.incorrect(shown, detail="unreadable", reason="unknown notation")
    return Verdict.incorrect(shown, detail=outcome.stage)


def _identical(gold: str, shown: str) -> Verdict:
    if not _NOTHING.sub("", gold):
        return Verdict.invalid("the answer is empty", answer=shown, detail="no_answer")
    return Verdict.correct(shown, detail="identical")


def _verdict(is_equal: bool, answer: str, stage: str) -> Verdict:
    return Verdict.correct(answer, detail=stage) if is_equal else Verdict.incorrect(answer, detail=stage)


def _reference_text(reference: Any) -> str | None:
    """A reference as text; None for what is neither text nor a finite number."""
    if isinstance(reference, str):
        return reference
    if isinstance(reference, bool) or not isinstance(reference, numbers.Real):
        return None
    if isinstance(reference, numbers.Rational):
        if max(abs(int(reference.numerator)), int(reference.denominator)).bit_length() > _MAX_REFERENCE_BITS:
            return None
        return str(Fraction(int(reference.numerator), int(reference.denominator)))
    value = float(reference)
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
