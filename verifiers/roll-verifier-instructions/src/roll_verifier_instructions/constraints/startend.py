"""`startend:*`: how a response begins and ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_verifier_instructions.base import Constraint, Finding, Text
from roll_verifier_instructions.text import fold, has_words, phrase_pattern, straighten

_TAIL_CHARS = 400


@dataclass(frozen=True)
class EndChecker(Constraint):
    """The response ends with the phrase, as whole words, whatever its case, blanks and quote shapes.

    Behind it only blanks, quotes and markdown emphasis may stand; other punctuation, emoji and words may not.

    Deviates: the official checker takes a phrase that begins in the middle of a word ("sin India." for "in India."),
    and refuses emphasis behind it and typographic apostrophes in it.
    """

    id = "startend:end_checker"
    judges_repetition = True
    end_phrase: Text

    def _check(self, text: str) -> Finding:
        tail = fold(text[-(4 * len(self.end_phrase) + _TAIL_CHARS) :])
        allowed = " \t\n\"'*\x00`"
        phrase = fold(self.end_phrase)
        kept = phrase[len(phrase.rstrip(allowed)) :]
        end = tail.rstrip(allowed) + kept
        last = max(phrase_pattern(self.end_phrase).finditer(end), key=lambda found: found.end(), default=None)
        is_end = last is not None and not end[last.end() :].strip()
        return Finding(is_end, f"ends with {text.rstrip()[-40:]!r}")


@dataclass(frozen=True)
class Quotation(Constraint):
    """The whole response stands in one pair of double quotation marks, straight or typographic, and holds a word.

    Quotations inside are allowed. A response that merely begins with one quotation and ends with another
    (`"Hello" she said "bye"`) is not wrapped.

    Deviates: the official checker looks at the first and the last character alone, knows the straight mark only, and
    takes `""`.
    """

    id = "startend:quotation"
    judges_repetition = True

    def _check(self, text: str) -> Finding:
        stripped = straighten(text.strip())
        if len(stripped) < 2 or stripped[0] != '"' or stripped[-1] != '"' or stripped.endswith('\\"'):
            return Finding(False, "not between double quotation marks")
        inner = stripped[1:-1]
        if not has_words(inner):
            return Finding(False, "nothing between the quotation marks")
        marks = list(re.finditer(r'(?<!\\)"', inner))
        if len(marks) > 1 and _closes(inner, marks[0].start()) and _opens(inner, marks[-1].start()):
            return Finding(False, "two quotations, not one around the whole")
        return Finding(True, "wrapped")


def _closes(text: str, position: int) -> bool:
    before, after = text[:position][-1:], text[position + 1 : position + 2]
    return bool(before.strip()) and after in " \t\n.,;:!?)"


def _opens(text: str, position: int) -> bool:
    before, after = text[:position][-1:], text[position + 1 : position + 2]
    return before in " \t\n([" and bool(after.strip())
