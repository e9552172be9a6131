"""`ChoiceVerifier`: the component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roll_core.types import Prompt, Rollout, Verdict, without_thinking
from roll_verifier_choice.commit import Extract, commitment, given_answer
from roll_verifier_choice.options import MAX_OPTIONS, Options
from roll_verifier_choice.reference import BadReferenceError, Gold, read_reference
from roll_verifier_choice.slot import Slot
from roll_verifier_choice.text import clean


@dataclass(frozen=True, slots=True)
class ChoiceVerifier:
    r"""Accepts a response whose last committed answer is the right option.

    * `CORRECT`: that option; `detail` says how it was named: "letter", "text" or "letter_and_text".
    * `INCORRECT`: another option (the same details), several for one ("hedged"), one taken back or excluded
      ("negated"), or a letter beside another option's text ("contradiction").
    * `INVALID`: no answer ("no_answer"), or one that is none of the options ("out_of_range", "not_an_option").
    * `UNDECIDED`: the reference names no option ("bad_reference").

    Args:
        extract: where the answer is looked for: "boxed" (only `\boxed{}`), "last" (only the last line), "auto" (boxes,
            `<answer>` tags, "the answer is" and the like in several languages, else a last line or opening that is
            nothing but an option).
        form: "response" for whole replies, "answer" when the response is the bare answer already.
        multiple: references may name several options; all of them and no other must be chosen.
        index_base: which index the first option has where a reference gives a number.
        num_options: how many options there are where neither reference nor prompt says it; None takes any letter.

    Raises:
        ValueError: `num_options` is not between 2 and 26, or `index_base` negative.
    """

    extract: Extract = "auto"
    form: Literal["response", "answer"] = "response"
    multiple: bool = False
    index_base: int = 0
    num_options: int | None = None

    def __post_init__(self) -> None:
        if self.index_base < 0 or (self.num_options is not None and not 2 <= self.num_options <= MAX_OPTIONS):
            given = f"num_options {self.num_options}, index_base {self.index_base}"
            raise ValueError(f"num_options must be 2 to {MAX_OPTIONS} and index_base at least 0, got {given}")

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
            reference: the right option: a letter ("B", "(b)", "B) Paris"); `{"answer": "B", "choices": [...]}`, with
                the answer as letter, text or index and the choices as a list of texts, a mapping from labels to texts,
                or `{"label": [...], "text": [...]}`; `{"label": "B", "text": "Paris"}`; an index with `num_options`.
                With `multiple` also "A,C" or a list.
            prompt: `info["choices"]` (or "options") gives the options where the reference does not.
            rollout: not looked at.
        """
        info: Mapping[str, Any] = {} if prompt is None else prompt.info
        try:
            gold = read_reference(
                reference, info, index_base=self.index_base, num_options=self.num_options, multiple=self.multiple
            )
        except BadReferenceError as error:
            return Verdict.undecided(str(error), detail="bad_reference")
        text = clean(without_thinking(response))
        if not any(character.isalnum() for character in text):
            return Verdict.invalid("the response holds no answer", detail="no_answer")
        return _verdict(gold, self._find(text, gold.options))

    def _find(self, text: str, options: Options) -> Slot:
        if self.form == "answer":
            return given_answer(text, options, multiple=self.multiple)
        return commitment(text, options, self.extract, multiple=self.multiple)


_REASONS = {
    "hedged": "more than one option is named",
    "negated": "the option is excluded or taken back",
    "contradiction": "the letter and the text beside it are different options",
}


def _verdict(gold: Gold, slot: Slot) -> Verdict:
    answer = ",".join(gold.options.labels[i] for i in sorted(slot.chosen)) or None
    if slot.kind == "none":
        return Verdict.invalid("no option is named as the answer", detail="no_answer")
    if slot.kind == "out_of_range":
        labels = gold.options.labels
        reason = f"the letter is none of {labels[0]} to {labels[-1]}"
        return Verdict.invalid(reason, answer=answer, detail="out_of_range")
    if slot.kind == "not_an_option":
        return Verdict.invalid("what is given as the answer is none of the options", detail="not_an_option")
    if slot.kind == "chosen":
        right = slot.chosen == gold.right
        return Verdict.correct(answer, detail=slot.how) if right else Verdict.incorrect(answer, detail=slot.how)
    return Verdict.incorrect(answer, detail=slot.kind, reason=_REASONS[slot.kind])
