"""`instructions`: does a response follow every instruction of an IFEval row?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_instructions.base import BrokenTaskError, Constraint, Finding
from roll_verifier_instructions.constraints.combination import RepeatPrompt
from roll_verifier_instructions.reference import read_reference
from roll_verifier_instructions.text import clean, has_words
from roll_verifier_instructions.variants import loose_variants

MAX_CHARS = 500_000


@dataclass(frozen=True, slots=True)
class InstructionsVerifier:
    """Checks the 25 constraint types of IFEval, each as its class in `constraints` defines it.

    * `CORRECT`: every instruction is followed.
    * `INCORRECT`: one is not; with `partial` the score is the share of those that are.
    * `INVALID`: the response holds no letter or digit, or is longer than 500,000 characters.
    * `ERROR`: the reference is broken (unknown id, missing, unknown or wrong argument, no instruction at all).

    `detail` names each instruction with `=pass` or `=fail`, in the order of the reference. Thinking
    (`<think>…</think>`) is left out first. A request that the policy repeats because `combination:repeat_prompt` asks
    for it is not judged by the other constraints, those on length, beginning and end apart: its commas and keywords are
    not the policy's.

    Args:
        mode: strict judges the response as it is; loose also without its first line, its last line, and asterisks, and
            takes an instruction as followed when one of the eight readings follows it.
        partial: score the share of instructions followed instead of all or nothing.

    Source: Zhou et al. 2023, arXiv:2311.07911.
    Deviates: each constraint says where and why.
    """

    mode: Literal["strict", "loose"] = "strict"
    partial: bool = False

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
            reference: `{"instruction_id_list": […], "kwargs": [{…}, …]}` as IFEval rows have it, None standing for
                arguments that are not used; or that as JSON text.
            prompt: what `combination:repeat_prompt` wants repeated where its argument and the reference do not say so.
            rollout: not looked at.
        """
        try:
            constraints = read_reference(reference, prompt)
        except BrokenTaskError as error:
            return Verdict.error(str(error), detail="bad_reference")
        if len(response) > MAX_CHARS:
            reason = f"the response has {len(response)} characters, more than {MAX_CHARS}"
            return Verdict.invalid(reason, detail="too_long")
        text = clean(response)
        if not has_words(text):
            return Verdict.invalid("the response holds no letter or digit", detail="empty")
        texts = loose_variants(text) if self.mode == "loose" else [text]
        return self._verdict(constraints, findings(constraints, texts))

    def _verdict(self, constraints: Sequence[Constraint], found: Sequence[Finding]) -> Verdict:
        results = " ".join(
            f"{constraint.id}={'pass' if finding.is_followed else 'fail'}"
            for constraint, finding in zip(constraints, found, strict=True)
        )
        followed = sum(finding.is_followed for finding in found)
        if followed == len(found):
            return Verdict.correct(detail=f"followed {results}")
        reasons = [
            f"{constraint.id}: {finding.reason}"
            for constraint, finding in zip(constraints, found, strict=True)
            if not finding.is_followed
        ]
        score = followed / len(found) if self.partial else 0.0
        return Verdict.incorrect(score=score, detail=f"broken {results}", reason="; ".join(reasons))


def findings(constraints: Sequence[Constraint], texts: Sequence[str]) -> list[Finding]:
    """One finding for each constraint: followed when one of the texts follows it, else what the first text has."""
    repeat = next((constraint for constraint in constraints if isinstance(constraint, RepeatPrompt)), None)
    return [_first_followed([_judge(constraint, text, repeat) for text in texts]) for constraint in constraints]


def _first_followed(found: Sequence[Finding]) -> Finding:
    return next((finding for finding in found if finding.is_followed), found[0])


def _judge(constraint: Constraint, text: str, repeat: RepeatPrompt | None) -> Finding:
    if repeat is not None and not constraint.judges_repetition:
        answer = repeat.answer(text)
        text = text if answer is None else answer
    return constraint.check(text)
