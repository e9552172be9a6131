r"""A reward for putting the answer into `\boxed{}`."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.types import RolloutGroup, without_thinking


@dataclass(frozen=True, slots=True)
class FormatBoxed:
    r"""1 when the response, thinking left out, holds a complete `\boxed{...}` that is not empty, else 0."""

    def __call__(self, group: RolloutGroup) -> list[float | None]:
        """One value per rollout, 0 or 1."""
        return [float(_has_box(rollout.response)) for rollout in group.rollouts]


def _has_box(response: str) -> bool:
    text = without_thinking(response)
    start = text.find("\\boxed{")
    while start >= 0:
        begin = start + len("\\boxed{")
        end = _closing_brace(text, begin)
        if end < 0:
            return False
        if text[begin:end].strip():
            return True
        start = text.find("\\boxed{", end)
    return False


def _closing_brace(text: str, begin: int) -> int:
    """Index of the brace that closes the one before `begin`; -1 when there is none."""
    depth = 1
    position = begin
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1  # the next character is escaped
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return -1
