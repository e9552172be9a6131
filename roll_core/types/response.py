"""What counts of a response: the part outside the model's thinking."""

from __future__ import annotations

import re

_HINTS = ("think", "thought>", "_thought|>", "reasoning>")
_OPEN = re.compile(
    r"<\s*(?:seed:)?(?:think|thinking|thought|reasoning)\s*>|\[THINK\]|◁\s*think\s*▷|<\|begin_of_thought\|>",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    r"<\s*/\s*(?:seed:)?(?:think|thinking|thought|reasoning)\s*>|\[/THINK\]|◁\s*/\s*think\s*▷|<\|end_of_thought\|>",
    re.IGNORECASE,
)


def without_thinking(response: str) -> str:
    """The text behind the last closing mark of thinking; empty when thinking was opened after it and never closed.

    An opening mark need not be there: chat templates often write it themselves. Marks: `<think>` (also `<thinking>`,
    `<thought>`, `<reasoning>`, `<seed:think>`), `[THINK]`, `◁think▷`, `<|begin_of_thought|>`, in any letter case.
    """
    lower = response.lower()
    if not any(hint in lower for hint in _HINTS):
        return response
    end = 0
    for match in _CLOSE.finditer(response):
        end = match.end()
    return "" if _OPEN.search(response, end) else response[end:]
