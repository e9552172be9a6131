"""`keywords:*`: words and letters that must or must not occur."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any

from roll_verifier_instructions.base import Constraint, Count, Finding, Relation, Text, Texts, as_text, compare
from roll_verifier_instructions.text import base_letters, count_phrase, fold


@dataclass(frozen=True)
class KeywordsExist(Constraint):
    """Every keyword occurs as a whole word (or words, over any blanks), whatever its case.

    "cat's" and "cat-like" hold "cat"; "cats" and "concatenate" do not. Markup, quote shapes and full-width forms do
    not matter.

    Deviates: the official checker searches the keyword as a regular expression anywhere, so "le" is found in "apple"
    and "C++" is an error.
    """

    id = "keywords:existence"
    keywords: Texts

    def _check(self, text: str) -> Finding:
        folded = fold(text)
        missing = [keyword for keyword in self.keywords if not count_phrase(keyword, folded)]
        return Finding(not missing, f"missing: {', '.join(missing)}" if missing else "all there")


@dataclass(frozen=True)
class KeywordFrequency(Constraint):
    """The keyword occurs at least, or less than, `frequency` times as a whole word; see `KeywordsExist`.

    Deviates: the official checker counts inside other words ("war" in "forward") and reads the keyword as a regular
    expression.
    """

    id = "keywords:frequency"
    keyword: Text
    frequency: Count
    relation: Relation

    def _check(self, text: str) -> Finding:
        found = count_phrase(self.keyword, fold(text))
        return compare(found, self.relation, self.frequency, f"times '{self.keyword}'")


@dataclass(frozen=True)
class ForbiddenWords(Constraint):
    """None of the words occurs as a whole word, whatever its case; see `KeywordsExist`. "rocky" is not "rock".

    Deviates: the official checker takes the underscore for a letter, so that `_rock_` (emphasis) gets through, as do
    words with invisible characters inside and full-width letters; it reads the word as a regular expression.
    """

    id = "keywords:forbidden_words"
    forbidden_words: Texts

    def _check(self, text: str) -> Finding:
        folded = fold(text)
        found = [word for word in self.forbidden_words if count_phrase(word, folded)]
        return Finding(not found, f"forbidden: {', '.join(found)}" if found else "none there")


def _as_character(value: Any) -> str:
    text = unicodedata.normalize("NFC", as_text(value))
    if len(text) != 1:
        raise ValueError("must be one character")
    return text


@dataclass(frozen=True)
class LetterFrequency(Constraint):
    """The character occurs at least, or less than, `let_frequency` times, whatever its case.

    A plain letter is also counted under accents and in ligatures ("é" holds "e"), so that a text without "e" cannot
    be had with "é"; an accented letter that is asked for is counted as such alone. Signs ("#", "!") count as they are.

    Deviates: the official checker counts "é" apart from "e" or not, depending on how it is encoded; some versions
    replace a sign by a random letter.
    """

    id = "keywords:letter_frequency"
    letter: Annotated[str, _as_character]
    let_frequency: Count
    let_relation: Relation

    def _check(self, text: str) -> Finding:
        plain = base_letters(text) if self.letter.isascii() else text.lower()
        found = plain.count(self.letter.lower())
        return compare(found, self.let_relation, self.let_frequency, f"times '{self.letter}'")
