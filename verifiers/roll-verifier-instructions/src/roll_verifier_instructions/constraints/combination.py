"""`combination:*`: two responses, and the repeated request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from roll_verifier_instructions.base import Constraint, Finding, Text
from roll_verifier_instructions.text import fold, has_words, straighten, words

_SEPARATOR = re.compile(r"(?<!\*)\*{6}(?!\*)")
_KIND = "(?:response|answer|version|option|reply)"
_LABEL = re.compile(rf"\A\W*(?:{_KIND}\W*(?:\d+|[ab]|one|two)|(?:first|second)\s+{_KIND})\b")


@dataclass(frozen=True)
class TwoResponses(Constraint):
    """Exactly two different responses with exactly six asterisks between them.

    One more separator at the very beginning or end is ignored. Two responses are different when their words are, apart
    from case, punctuation and a label in front ("Response 1:").

    Deviates: the official checker also splits seven or more asterisks, and takes two responses that differ in a dot or
    a label.
    """

    id = "combination:two_responses"
    judges_repetition = True

    def _check(self, text: str) -> Finding:
        parts = _SEPARATOR.split(text)
        if len(parts) > 2 and not has_words(parts[-1]):
            parts.pop()
        if len(parts) > 2 and not has_words(parts[0]):
            parts.pop(0)
        filled = sum(map(has_words, parts))
        if len(parts) != 2 or filled != 2:
            return Finding(False, f"{filled} responses between {len(parts) - 1} separators, wanted 2 and 1")
        first, second = (words(_LABEL.sub("", fold(part), count=1)) for part in parts)
        return Finding(first != second, "the two responses are the same" if first == second else "two responses")


@dataclass(frozen=True)
class RepeatPrompt(Constraint):
    """The response begins with the request, word for word, and goes on with an answer.

    Case, the kind of blanks and the shape of quotes do not count; nothing may stand before it.

    Deviates: the official checker asks for no answer behind the request, and for the very same blanks.
    """

    id = "combination:repeat_prompt"
    judges_repetition = True
    prompt_to_repeat: Text

    def _check(self, text: str) -> Finding:
        rest = self.answer(text)
        if rest is None:
            return Finding(False, f"begins with {text.lstrip()[:40]!r}")
        return Finding(has_words(rest), "repeated and answered" if has_words(rest) else "no answer behind the request")

    def answer(self, text: str) -> str | None:
        """What stands behind the repeated request; None where it is not repeated."""
        found = _opening(self.prompt_to_repeat).match(straighten(text))
        return None if found is None else text[found.end() :]


@lru_cache(maxsize=64)
def _opening(request: str) -> re.Pattern[str]:
    body = r"\s+".join(map(re.escape, straighten(request).split()))
    return re.compile(rf"\s*{body}(?!\w)" if request[-1].isalnum() else rf"\s*{body}", re.IGNORECASE)
