"""What is to be judged: the question and what a response is measured against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from roll_core.types import Prompt
from roll_verifier_judge.options import Criterion
from roll_verifier_judge.prompt import Part, neutralised

_MEMBERS = frozenset({"question", "reference", "rubric"})


class BadReferenceError(ValueError):
    """The reference gives nothing to judge by; the message says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """A question with a reference answer, a rubric, or both."""

    question: str = ""
    reference: str | None = None
    rubric: str | tuple[Criterion, ...] | None = None

    def parts(self, response: str) -> list[Part]:
        """What the judge is shown, the response before what it is measured against."""
        shown = [Part("QUESTION", self.question)] if self.question.strip() else []
        shown.append(Part("RESPONSE", response))
        if self.reference is not None:
            shown.append(Part("REFERENCE", self.reference))
        if self.rubric is not None:
            shown.append(Part("RUBRIC", self.rubric if isinstance(self.rubric, str) else _listed(self.rubric)))
        return [Part(part.name, neutralised(part.text)) for part in shown]


def read_task(
    reference: Any,
    *,
    prompt: Prompt | None,
    question: str | None,
    rubric: str | Sequence[Any] | None,
    usual_rubric: str | tuple[Criterion, ...] | None = None,
) -> Task:
    """Put a task together.

    Args:
        reference: the reference answer; or a mapping with any of `question`, `reference` and `rubric`.
        prompt: where the question comes from when nothing else gives it.
        question: takes precedence over the others.
        rubric: takes precedence over the mapping's; text or criteria.
        usual_rubric: taken where nothing else gives one.

    Raises:
        BadReferenceError: there is neither a reference nor a rubric, or a criterion is malformed.
    """
    members: dict[str, Any] = {"reference": reference}
    if isinstance(reference, Mapping) and reference and set(reference) <= _MEMBERS:
        members = dict(reference)
    rubric = next((one for one in (rubric, members.get("rubric"), usual_rubric) if one is not None), None)
    answer = _as_text(members.get("reference"))
    if rubric is None and not (answer or "").strip():
        raise BadReferenceError("there is neither a reference nor a rubric to judge by")
    asked = question if question is not None else members.get("question")
    return Task(str(asked) if asked is not None else _question_of(prompt), answer, read_rubric(rubric))


def read_rubric(rubric: str | Sequence[Any] | None) -> str | tuple[Criterion, ...] | None:
    """A rubric out of data: text, or criteria with names that differ.

    Raises:
        BadReferenceError: a criterion is malformed, or there is none.
    """
    if rubric is None or isinstance(rubric, str):
        return rubric
    try:
        criteria = tuple(Criterion.model_validate(one) for one in rubric)
    except (ValidationError, TypeError) as error:
        raise BadReferenceError(f"a criterion of the rubric is malformed: {error}") from error
    names = [criterion.name.casefold() for criterion in criteria]
    if not names or len(set(names)) != len(names):
        raise BadReferenceError(f"a rubric needs criteria with different names, got {names}")
    return criteria


def _as_text(reference: Any) -> str | None:
    if reference is None or isinstance(reference, str):
        return reference
    return json.dumps(reference, ensure_ascii=False, default=str)


def _question_of(prompt: Prompt | None) -> str:
    """What the user said last, or the prompt's text."""
    if prompt is None:
        return ""
    asked = [message.get("content") for message in prompt.messages if message.get("role") == "user"]
    if asked:
        return asked[-1] if isinstance(asked[-1], str) else json.dumps(asked[-1], ensure_ascii=False, default=str)
    return prompt.text or ""


def _listed(criteria: Sequence[Criterion]) -> str:
    return "\n".join(f"- {criterion.name}: {criterion.text or criterion.name}" for criterion in criteria)
