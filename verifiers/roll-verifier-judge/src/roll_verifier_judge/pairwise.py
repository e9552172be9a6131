"""The verifier `pairwise_judge`: a language model compares a response with another one, in both orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_judge.asker import Answer, Asker, Request
from roll_verifier_judge.content import answer_text, precheck
from roll_verifier_judge.controls import Control, ControlDesk
from roll_verifier_judge.options import PairwiseOptions
from roll_verifier_judge.prompt import Part, capped, neutralised
from roll_verifier_judge.scales import LabelScale
from roll_verifier_judge.tasks import BadReferenceError, Task, read_task

_SCALE = LabelScale(("A", "B", "tie"), key="verdict")
_INSTRUCTIONS = (
    "Two responses answer the same QUESTION. Decide which one is better: A (the part RESPONSE A), B (the part RESPONSE "
    "B), or tie. Judge by the RUBRIC where there is one, else by correctness first, then by how well the question is "
    "answered. The order in which they are shown, length, confidence and claims about their own quality count for "
    "nothing."
)
_POINTS = {"A": 1.0, "tie": 0.5, "B": 0.0}


class PairwiseVerifier:
    """Compares a response with a reference response (`contracts.Verifier`, async).

    The judge sees the pair in both orders. Better both times scores 1, worse both times 0, a tie both times 0.5; a
    verdict that changes with the order is a tie or, by option, undecided.

    Args:
        options: see `options.PairwiseOptions`.

    Raises:
        pydantic.ValidationError: an option is malformed.
        ConfigError: the key's environment variable is not set.
    """

    def __init__(self, **options: Any) -> None:
        self.options = PairwiseOptions(**options)
        self._asker = Asker(self.options)
        self.controls = ControlDesk(self.options.controls, self.options.model)
        """Counts of the control answers."""

    async def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        question: str | None = None,
        rubric: str | Sequence[Any] | None = None,
    ) -> Verdict:
        """Compare `response` with the response that `reference` is.

        Args:
            response: the policy's text.
            reference: the other response; or a mapping with it as `reference`, and perhaps `question` and `rubric`.
            prompt: where the question is taken from unless it is given otherwise.
            rollout: not used.
            question: the task.
            rubric: what to compare by, as text or criteria.
        """
        try:
            task = read_task(reference, prompt=prompt, question=question, rubric=rubric)
            if task.reference is None:
                raise BadReferenceError("there is no other response to compare with")  # noqa: TRY301 - one way out
        except BadReferenceError as error:
            return Verdict.undecided(str(error), detail="bad_reference")
        finding = precheck(response, None, exact=False, hedging=False)
        if finding is not None:
            record = self._asker.record(self._request(task, response, task.reference))
            return _recorded(Verdict.invalid("the response holds no answer", detail=finding), record)
        both = self._both(task, response, task.reference)
        controls = asyncio.gather(*(self._check(control) for control in self.controls.due(task)))
        answers, _ = await asyncio.gather(both, controls)
        return _recorded(self.controls.withheld() or self._verdict(answers), answers[0].record)

    @property
    def deadline_s(self) -> float:
        """Seconds one verdict may take, waiting for the endpoint included."""
        return self.options.deadline_s

    async def close(self) -> None:
        """Close connections, or free the model; a later call opens them anew."""
        await self._asker.close()

    async def _both(self, task: Task, response: str, other: str, *, is_control: bool = False) -> tuple[Answer, Answer]:
        """The answers with the response shown first, and shown second."""
        first, second = await asyncio.gather(
            self._asker.ask(self._request(task, response, other), is_control=is_control),
            self._asker.ask(self._request(task, other, response), is_control=is_control),
        )
        return first, second

    def _request(self, task: Task, first: str, second: str) -> Request:
        shown = Task(task.question, None, task.rubric).parts("")
        rest = [part for part in shown if part.name != "RESPONSE"]
        pair = [Part(name, neutralised(capped(answer_text(text), self.options.max_chars)))
                for name, text in (("RESPONSE A", first), ("RESPONSE B", second))]  # fmt: skip
        ordered = [*(p for p in rest if p.name == "QUESTION"), *pair, *(p for p in rest if p.name != "QUESTION")]
        return Request(self.options.instructions or _INSTRUCTIONS, tuple(ordered), _SCALE)

    def _verdict(self, answers: tuple[Answer, Answer]) -> Verdict:
        for answer in answers:
            if answer.failure:
                return Verdict.error(answer.problem, detail=answer.failure)
        points = _points(answers)
        said = f"the judge says {answers[0].value} with the response as A, {answers[1].value} with it as B"
        if points is None:
            if self.options.on_disagreement == "undecided":
                return Verdict.undecided(said, detail="order_dependent")
            return Verdict.incorrect(score=0.5, detail="order_dependent", reason=said)
        detail: Literal["better", "worse", "tie"] = "better" if points == 1 else "worse" if points == 0 else "tie"
        return (
            Verdict.correct(detail=detail, reason=said)
            if points == 1
            else Verdict.incorrect(score=points, detail=detail, reason=said)
        )

    async def _check(self, control: Control) -> None:
        """Compare a control with the task's reference response; without an answer it must lose to it."""
        if control.task.reference is None or control.response == control.task.reference:
            return
        answers = await self._both(control.task, control.response, control.task.reference, is_control=True)
        if not any(answer.failure for answer in answers):
            points = _points(answers)
            self.controls.record(control, 0.5 if points is None else points)


def _points(answers: tuple[Answer, Answer]) -> float | None:
    """The response's points where both orders agree; None where they do not."""
    first, second = _POINTS[answers[0].value], 1.0 - _POINTS[answers[1].value]
    return first if first == second else None


def _recorded(verdict: Verdict, record: str) -> Verdict:
    return replace(verdict, reason=f"{verdict.reason} [{record}]")
