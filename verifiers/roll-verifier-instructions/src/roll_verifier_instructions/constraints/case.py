"""`change_case:*`: capital and small letters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_verifier_instructions.base import Constraint, Count, Finding, Relation, compare
from roll_verifier_instructions.language import judge_language
from roll_verifier_instructions.text import words

_POSSESSIVE = re.compile(r"['’ʼ]s$")


@dataclass(frozen=True)
class EnglishCapital(Constraint):
    """Every letter that has a case is a capital, there is one, and the text is English by `language.judge_language`.

    Deviates: the official checker asks langdetect about the capitals, which takes them for German or others, and counts
    the constraint as followed when langdetect raises.
    """

    id = "change_case:english_capital"

    def _check(self, text: str) -> Finding:
        if not text.isupper():
            return Finding(False, _first(text, is_upper=False))
        return judge_language(text.lower(), "en")


@dataclass(frozen=True)
class EnglishLowercase(Constraint):
    """Every letter that has a case is small, there is one, and the text is English by `language.judge_language`.

    Deviates: the official checker's language detection is random on short texts, and its failure counts as followed.
    """

    id = "change_case:english_lowercase"

    def _check(self, text: str) -> Finding:
        if not text.islower():
            return Finding(False, _first(text, is_upper=True))
        return judge_language(text, "en")


@dataclass(frozen=True)
class CapitalWordFrequency(Constraint):
    """At least, or less than, `capital_frequency` words of two letters or more are all in capitals.

    Digits and signs inside do not matter ("COVID-19", "U.S."); a possessive "'s" is left out
    ("NASA's"); a word with a small letter ("TVs") is not one. "I", "A" and "3D" have one letter and do not count.

    Deviates: the official checker counts "I", "A" and "B." and needs a downloaded tokenizer.
    """

    id = "change_case:capital_word_frequency"
    capital_frequency: Count
    capital_relation: Relation

    def _check(self, text: str) -> Finding:
        found = sum(map(_is_capital, words(text)))
        return compare(found, self.capital_relation, self.capital_frequency, "words in capitals")


def _is_capital(word: str) -> bool:
    word = _POSSESSIVE.sub("", word)
    return word.isupper() and sum(map(str.isalpha, word)) > 1


def _first(text: str, *, is_upper: bool) -> str:
    wrong = next((c for c in text if (c.isupper() if is_upper else c.islower())), None)
    if wrong is None:
        return "no letter that has a case"
    return f"{'capital' if is_upper else 'small'} letter {wrong!r}"
