"""Numbers written in words, and answers that are words."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_UNITS = {word: value for value, word in enumerate(_SMALL.split())}
_TENS = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)  # noqa: SIM905 - a list of words reads best as text
}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
          "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "eighth": 8, "eighths": 8, "tenth": 10, "tenths": 10,
          "hundredth": 100, "hundredths": 100}  # fmt: skip
_CONSTANTS = frozenset({"pi", "infinity", "inf", "theta", "alpha", "beta", "sqrt"})
NUMBER_WORDS = frozenset({*_UNITS, *_TENS, *_SCALES, *_PARTS})
_ARTICLES = re.compile(r"^(?:an?|the)\s+")
_PROSE = re.compile(r"[A-Za-z][A-Za-z'-]*(?:\s+[A-Za-z][A-Za-z'-]*)*")


def number_in_words(text: str) -> Fraction | None:
    """The value of "twenty-one", "one half", "2.5 million"; None for anything else."""
    words = [word for word in re.split(r"[\s-]+", text.strip().lower()) if word and word != "and"]
    if not words:
        return None
    if words[-1] in _PARTS:
        count = _whole(words[:-1]) if len(words) > 1 else 1
        return None if count is None else Fraction(count, _PARTS[words[-1]])
    if re.fullmatch(r"\d{1,30}(?:\.\d{1,30})?", words[0]) and len(words) == 2 and words[1] in _SCALES:
        return Fraction(words[0]) * _SCALES[words[1]]
    value = _whole(words)
    return None if value is None else Fraction(value)


def _whole(words: list[str]) -> int | None:
    total = current = 0
    if not words or len(words) > 12:
        return None
    for word in words:
        if word in _UNITS:
            current += _UNITS[word]
        elif word in _TENS:
            current += _TENS[word]
        elif word == "hundred":
            current = max(current, 1) * 100
        elif word in _SCALES:
            total += max(current, 1) * _SCALES[word]
            current = 0
        else:
            return None
    return total + current


def as_words(text: str) -> str | None:
    r"""The folded text of an answer that is words and nothing else, `\text` wrappers left out; None otherwise.

    A run of up to two letters is a product of symbols rather than a word, unless it stands in `\text` or among words.
    """
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).strip()
    bare = " ".join(bare.split())
    if not _PROSE.fullmatch(bare):
        return None
    is_symbols = bare == text and len(bare) < 3
    return None if is_symbols or bare.lower() in _CONSTANTS else _ARTICLES.sub("", bare.lower())
