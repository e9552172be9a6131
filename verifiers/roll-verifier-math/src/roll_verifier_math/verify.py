"""`MathVerifier`: the component."""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_math.bounds import MAX_ANSWER_CHARS, TooCostlyError
from roll_verifier_math.choice import choice_letter, picked_letter
from roll_verifier_math.extract import Extraction, Mode, extract
from roll_verifier_math.numbers import plain_number

if TYPE_CHECKING:
    from roll_verifier_math.nodes import Node


_NOTHING = re.compile(r"\\text\s*\{\s*\}|[\s{}()\[\]$]")


@dataclass(frozen=True, slots=True)
class MathVerifier:
    r"""Accepts a response whose final answer equals the reference as mathematics.

    * `CORRECT`: equal; `detail` names the stage that found it: "identical", "exact", "choice", "words", "structure",
      "region", "symbolic" (proved) or "numeric" (80 digits agree at every point tried).
    * `INCORRECT`: not equal, or not readable, or too large to compare ("too_costly") while the reference is simple.
    * `INVALID`: no answer was given.
    * `UNDECIDED`: the reference itself cannot be read, and the answer is not the same text.

    Args:
        extract: where the answer is looked for: "boxed" (the last `\boxed{}`), "last" (the last formula or number),
            "auto" (box, `<answer>` tag, "the answer is", last number).
        form: "response" for whole replies, "answer" when the response is the bare answer already.
    """

    extract: Mode = "auto"
    form: Literal["response", "answer"] = "response"

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
            return Verdict.undecided(f"the reference is no text or number: {reference!r:.100}", detail="bad_reference")
        found = Extraction(response.strip(), "given") if self.form == "answer" else extract(response, self.extract)
        if found is None or not found.text:
            return Verdict.invalid("no answer was found", detail="no_answer")
        return judge(gold, found.text)


def judge(gold: str, answer: str) -> Verdict:
    """Compare two bare answers."""
    if (right := plain_number(gold)) is not None and (given := plain_number(answer)) is not None:
        return _verdict(right == given, answer, "exact")
    shown = answer[:MAX_ANSWER_CHARS]
    if gold.strip() == answer.strip() and gold.strip():
        return Verdict.correct(shown, detail="identical")
    if (letter := choice_letter(gold)) is not None and (picked := picked_letter(answer)) is not None:
        return _verdict(letter == picked, shown, "choice")
    return _judge_trees(gold, answer, shown)


def _judge_trees(gold: str, answer: str, shown: str) -> Verdict:
    from roll_verifier_math.read import read

    right, given = read(gold), read(answer)
    if not _NOTHING.sub("", given.text):
        return Verdict.invalid("the answer is empty", answer=shown, detail="no_answer")
    if right.text and _squeezed(right.text) == _squeezed(given.text):
        return Verdict.correct(shown, detail="identical")
    if right.node is None:
        reason = f"the reference {gold!r:.100} cannot be read: {right.refusal}"
        return Verdict.undecided(reason, answer=shown, detail="bad_reference")
    if given.node is None:
        detail = "too_costly" if given.is_costly else "unreadable"
        return Verdict.incorrect(shown, detail=detail, reason=given.refusal)
    return _compared(right.node, given.node, shown)


def _compared(gold: Node, answer: Node, shown: str) -> Verdict:
    from roll_verifier_math.compare import compare

    try:
        outcome = compare(gold, answer)
    except TooCostlyError as error:
        if _is_costly(gold):
            return Verdict.undecided(f"the reference is too large: {error}", answer=shown, detail="too_costly")
        return Verdict.incorrect(shown, detail="too_costly", reason=str(error))
    return _verdict(outcome.is_equal, shown, outcome.stage)


def _verdict(is_equal: bool, answer: str, stage: str) -> Verdict:
    return Verdict.correct(answer, detail=stage) if is_equal else Verdict.incorrect(answer, detail=stage)


def _squeezed(text: str) -> str:
    """The text without blanks, except those that keep two letters or digits apart."""
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", text)


def _is_costly(gold: Node) -> bool:
    """Whether the reference cannot even be compared with zero."""
    from roll_verifier_math.compare import compare
    from roll_verifier_math.nodes import Num

    try:
        compare(gold, Num(Fraction(0)))
    except TooCostlyError:
        return True
    return False


def _reference_text(reference: Any) -> str | None:
    """A reference as text; None for what is neither text nor a finite number."""
    if isinstance(reference, str):
        return reference
    if isinstance(reference, bool) or not isinstance(reference, numbers.Real):
        return None
    if isinstance(reference, numbers.Rational):
        return str(Fraction(int(reference.numerator), int(reference.denominator)))
    value = float(reference)
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
