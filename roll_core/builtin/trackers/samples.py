"""A few rollouts of a step as a table: what every tracker that shows samples shows.

Trackers of other packages use it too, so that the same rollouts stand in each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from roll_core.types import Message, Prompt, Rollout, RolloutGroup

Cell = str | int | float | None

COLUMNS = ("step", "domain", "prompt", "response", "status", "score", "reward")
"""Columns of a row of samples. `score` and `reward` are None where the machinery failed."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Which rollouts are shown, and when.

    Args:
        count: rollouts in one table; 0 shows none.
        every: steps from one table to the next; the first one shows step 1.

    Raises:
        ValueError: `count` is negative, or `every` is not positive.
    """

    count: int = 8
    every: int = 10

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"the number of samples must be at least 0, got {self.count}")
        if self.every < 1:
            raise ValueError(f"samples are shown every n-th step with n of at least 1, got {self.every}")

    def rows(self, step: int, groups: Sequence[RolloutGroup]) -> list[tuple[Cell, ...]]:
        """Rows of `COLUMNS`; empty at steps that show none."""
        if (step - 1) % self.every:
            return []
        return [sample_row(step, rollout) for rollout in pick(groups, self.count)]


def pick(groups: Sequence[RolloutGroup], count: int) -> list[Rollout]:
    """Up to `count` rollouts, spread over domains, then prompts, then answers; the same ones in every process."""
    by_domain: dict[str, list[RolloutGroup]] = {}
    for group in groups:
        by_domain.setdefault(group.ticket.domain, []).append(group)
    lanes = [_in_turn([group.rollouts for group in own]) for own in by_domain.values()]
    return list(islice(_in_turn([list(lane) for lane in lanes]), count))


def sample_row(step: int, rollout: Rollout) -> tuple[Cell, ...]:
    """One row of `COLUMNS`."""
    return (
        step,
        rollout.ticket.domain,
        prompt_text(rollout.prompt),
        storable(rollout.response),
        str(rollout.verdict.status) if rollout.verdict is not None else None,
        rollout.score,
        rollout.reward if rollout.is_scored else None,
    )


def prompt_text(prompt: Prompt) -> str:
    """What a person reads as the prompt."""
    if prompt.text is not None:
        return storable(prompt.text)
    if prompt.messages:
        return storable("\n\n".join(f"{m.get('role', '')}: {_content(m)}" for m in prompt.messages))
    return f"<{len(prompt.token_ids or ())} token ids>"


def storable(text: str) -> str:
    """The text with lone surrogates, which JSON data may hold and UTF-8 cannot, as question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _content(message: Message) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = [content] if isinstance(content, dict) else content
    return "".join(p["text"] if "text" in p else f"<{p.get('type', 'part')}>" for p in parts)


def _in_turn(lanes: Sequence[Sequence[Rollout]]) -> Iterator[Rollout]:
    """The first of each lane, then the second of each, and so on."""
    for row in zip_longest(*lanes):
        yield from (rollout for rollout in row if rollout is not None)
