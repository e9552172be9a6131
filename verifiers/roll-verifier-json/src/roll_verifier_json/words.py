"""`word_limit`: the length of a response in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.types import Prompt, Rollout, Verdict, without_thinking


@dataclass(frozen=True, slots=True)
class WordLimitVerifier:
    """Accepts a response of `min_words` to `max_words` words; words are what stands between blanks.

    * `CORRECT` within the limits, `INCORRECT` beyond them ("too_long", "too_short"), `INVALID` without any word that
      holds a letter or digit, `UNDECIDED` when the reference is not `{"max_words": n}` with an optional `"min_words"`.

    Thinking (`<think>…</think>`) is left out first.

    Args:
        min_words: smallest number of words where the reference names none.
    """

    min_words: int = 3

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
            reference: `{"max_words": n}`, with `"min_words"` where it differs from the option; a bare number is
                `max_words`.
            prompt: not looked at.
            rollout: not looked at.
        """
        limits = self._limits(reference)
        if limits is None:
            reason = (
                f"the reference must be {{'max_words': n, 'min_words': m}} with 0 <= m <= n, got {reference!r:.100}"
            )
            return Verdict.undecided(reason, detail="bad_reference")
        words = without_thinking(response).split()
        if not any(character.isalnum() for word in words for character in word):
            return Verdict.invalid("the response holds no words", detail="empty")
        count = len(words)
        if count > limits[1]:
            return Verdict.incorrect(str(count), detail="too_long", reason=f"{count} words, at most {limits[1]}")
        if count < limits[0]:
            return Verdict.incorrect(str(count), detail="too_short", reason=f"{count} words, at least {limits[0]}")
        return Verdict.correct(str(count), detail="within")

    def _limits(self, reference: Any) -> tuple[int, int] | None:
        if isinstance(reference, Mapping):
            most, least = reference.get("max_words"), reference.get("min_words", self.min_words)
        else:
            most, least = reference, self.min_words
        limits = _count(least), _count(most)
        return None if limits[0] is None or limits[1] is None or limits[0] > limits[1] else (limits[0], limits[1])


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
