r"""The final answer of a response: the last box, else a tagged or announced answer, else the last number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from roll_core.types import without_thinking
from roll_verifier_math.answers.announced import announced
from roll_verifier_math.answers.boxes import last_boxes
from roll_verifier_math.answers.fallback import last_value
from roll_verifier_math.bounds import MAX_RESPONSE_CHARS

Mode = Literal["boxed", "last", "auto"]

_TAIL = 10_000
"""Characters at the end of a response in which an announcement, formula or number is looked for."""
_END_TOKENS = re.compile(r"(?:\s*(?:<\|\w+\|>|</?s>|<eos>|<end_of_turn>))+\s*$")


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer's text and where it was found ("boxed", "announced", "last", "given").

    `parts` are the texts of several boxes side by side, of which `text` is the list.
    """

    text: str
    where: str
    parts: tuple[str, ...] = ()


def extract(response: str, mode: Mode) -> Extraction | None:
    """Find the final answer; None when the response gives none.

    Args:
        response: what the policy wrote. Thinking (`<think>…</think>`) does not count; thinking that never ended
            leaves no answer.
        mode: "boxed" takes only boxes, "last" only the last formula or number, "auto" whatever the response offers,
            in the order box, `<answer>` tag, "answer is", last number.
    """
    text = _without_end_tokens(without_thinking(response))[-MAX_RESPONSE_CHARS:]
    if mode != "last":
        boxes = last_boxes(text)
        if boxes is not None and not (mode == "auto" and boxes.is_placeholder):
            return _joined(boxes.texts)
        if mode == "boxed":
            return None
        found = announced(text[-_TAIL:] if boxes is None else text[boxes.end :])
        if found is not None or boxes is not None:
            return Extraction(found, "announced") if found else None
    value = last_value(text[-_TAIL:])
    return Extraction(value, "last") if value else None


def _without_end_tokens(text: str) -> str:
    if not text.endswith((">", "> ", ">\n")):
        return text
    end = _END_TOKENS.search(text, max(0, len(text) - 200))
    return text[: end.start()] if end else text


def _joined(boxes: tuple[str, ...]) -> Extraction | None:
    distinct = list(dict.fromkeys(box.strip() for box in boxes))
    if not distinct or not all(distinct):
        return None
    return Extraction(", ".join(distinct), "boxed", tuple(distinct) if len(distinct) > 1 else ())
