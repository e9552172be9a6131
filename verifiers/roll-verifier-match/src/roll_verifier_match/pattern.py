"""`regex`: the answer matches a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_match.bounded import BadPatternError, Mode, TooSlowError, compiled, matches
from roll_verifier_match.extract import Extract, extract

_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class RegexVerifier:
    r"""Accepts an answer that matches a pattern.

    * `CORRECT`: it matches ("match").
    * `INCORRECT`: it does not ("no_match"); it is longer than `max_chars` ("too_long"); it keeps a pattern that is
      quick on ordinary text busy beyond `timeout_s` ("timeout"); different boxes or tags in one row ("hedged").
    * `INVALID`: the answer is empty, or there is no tag or box where one is asked for ("no_answer").
    * `UNDECIDED`: there is no pattern, it does not compile, or is too slow for ordinary text ("bad_pattern").

    Args:
        mode: "full": the whole answer must match; "search": somewhere in it.
        flags: letters of "imsx", as in `(?imsx)`.
        default_pattern: used where a row has no reference.
        extract: what of the response is matched, as for `exact`: "whole", "raw", "last_line", "tag" or "boxed".
        strip: leave out blanks around the answer first.
        max_chars: longest answer that is looked at, in characters.
        timeout_s: seconds that a match may take.

    Raises:
        ValueError: flags, limits or `default_pattern` cannot be used.
    """

    mode: Mode = "full"
    flags: str = ""
    default_pattern: str | None = None
    extract: Extract = "whole"
    strip: bool = True
    max_chars: int = 100_000
    timeout_s: float = 0.5

    def __post_init__(self) -> None:
        if self.max_chars < 1 or not self.timeout_s > 0:
            raise ValueError(f"max_chars and timeout_s must be positive, got {self.max_chars} and {self.timeout_s}")
        try:
            compiled(self.default_pattern or "", self.flags)
        except BadPatternError as error:
            raise ValueError(str(error)) from error

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
            reference: the pattern, or a compiled `re.Pattern` (its own flags are kept); None takes `default_pattern`.
            prompt: not looked at.
            rollout: not looked at.
        """
        written = self.default_pattern if reference is None else reference
        source, flags = written, self.flags
        if isinstance(written, re.Pattern):
            source, flags = written.pattern, _letters(written)
        if not isinstance(source, str) or not source:
            return Verdict.undecided(f"the reference is no pattern: {written!r:.100}", detail="bad_pattern")
        try:
            pattern = compiled(source, flags)
            return self._match(response, pattern)
        except BadPatternError as error:
            return Verdict.undecided(str(error), detail="bad_pattern")

    def _match(self, response: str, pattern: Any) -> Verdict:
        found = extract(response, self.extract)
        if found.text is None or not found.text.strip():
            return Verdict.invalid("the response has no answer", detail="no_answer")
        text = found.text.strip() if self.strip else found.text
        if found.is_hedged:
            return Verdict.incorrect(text[:_SHOWN], detail="hedged", reason="different answers in one row")
        if len(text) > self.max_chars:
            reason = f"{len(text)} characters, at most {self.max_chars}"
            return Verdict.incorrect(text[:_SHOWN], detail="too_long", reason=reason)
        try:
            is_match = matches(pattern, text, mode=self.mode, timeout_s=self.timeout_s)
        except TooSlowError as error:
            return Verdict.incorrect(text[:_SHOWN], detail="timeout", reason=str(error))
        shown = text[:_SHOWN]
        return Verdict.correct(shown, detail="match") if is_match else Verdict.incorrect(shown, detail="no_match")


def _letters(pattern: re.Pattern[Any]) -> str:
    flags = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
    return "".join(letter for letter, flag in flags.items() if pattern.flags & flag)
