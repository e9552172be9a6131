"""Numbers written in words, and answers that are words."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

from roll_verifier_math.reading.vocabulary import PLAIN_CONSTANTS

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_UNITS = {word: value for value, word in enumerate(_SMALL)}
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
          "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7, "eighth": 8, "eighths": 8,
          "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10, "twelfth": 12, "twelfths": 12, "hundredth": 100,
          "hundredths": 100, "thousandth": 1000, "thousandths": 1000}  # fmt: skip
_SIGNS = frozenset({"negative", "minus"})
NUMBER_WORDS = frozenset(
    {*_UNITS, *_TENS, *_SCALES, *_PARTS, "hundred", "hundreds", "thousands", "millions", "billions", "dozen", "dozens"}
)
_CONSTANTS = frozenset({*PLAIN_CONSTANTS, "sqrt"})
_ARTICLES = re.compile(r"^(?:an?|the)\s+(?!(?:and|or)\b)")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LETTERS = r"[^\W\d_]+(?:['-][^\W\d_]+)*"
_PROSE = re.compile(rf"{_LETTERS}(?: +{_LETTERS})*")
_SPLIT = re.compile(r"[\s-]+")
_FIGURES = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?")
_SHORT_WORDS = frozenset({"no", "on", "ok", "up"})
"""Words of two letters that nobody means as a product."""
_VOWELS = frozenset("aeiouy")


def number_in_words(text: str) -> Fraction | None:
    """The value of "twenty-one", "minus two and a half", "one half", "2.5 million"; None for anything else."""
    words = _SPLIT.split(text.strip().lower())
    if not all(words) or len(words) > 16:
        return None
    sign = -1 if words[0] in _SIGNS else 1
    if words[0] in _SIGNS or words[0] == "positive":
        words = words[1:]
    value = _figures(words) if words and _FIGURES.fullmatch(words[0]) else _value(words)
    return None if value is None else sign * value


def _figures(words: list[str]) -> Fraction | None:
    if len(words) != 2 or words[1] not in (*_SCALES, "hundred", "dozen"):
        return None
    return Fraction(words[0]) * {**_SCALES, "hundred": 100, "dozen": 12}[words[1]]


def _value(words: list[str]) -> Fraction | None:
    if "point" in words:
        return _with_point(words)
    for index in range(1, len(words) - 1):
        if words[index] == "and" and (part := _part(words[index + 1 :])) is not None:
            whole = _whole(words[:index])
            return None if whole is None else whole + part
    if (part := _part(words)) is not None:
        return part
    whole = _whole(words)
    return None if whole is None else Fraction(whole)


def _with_point(words: list[str]) -> Fraction | None:
    at = words.index("point")
    whole, digits = _whole(words[:at]), [_UNITS.get(word, 10) for word in words[at + 1 :]]
    if whole is None or not digits or max(digits) > 9:
        return None
    return Fraction(f"{whole}.{''.join(map(str, digits))}")


def _part(words: list[str]) -> Fraction | None:
    """The value of "half", "a quarter", "two thirds"."""
    if not words or words[-1] not in _PARTS:
        return None
    if len(words) == 1:
        is_plain = words[0] in ("half", "quarter")
        return Fraction(1, _PARTS[words[0]]) if is_plain else None
    count = 1 if words[:-1] in (["a"], ["an"]) else _whole(words[:-1])
    if count is None or (count != 1) != words[-1].endswith("s"):  # "twenty-third" is an ordinal
        return None
    return Fraction(count, _PARTS[words[-1]])


def _whole(words: list[str]) -> int | None:
    """The value of whole-number words in their proper order."""
    if words and words[0] in ("a", "an") and len(words) > 1 and words[1] in (*_SCALES, "hundred", "dozen"):
        words = ["one", *words[1:]]
    if len(words) == 2 and words[1] == "dozen":
        count = _below_hundred(words[:1])
        return None if count is None else 12 * count
    total, rest = 0, words
    for scale, size in sorted(_SCALES.items(), key=lambda item: -item[1]):
        if scale in rest:
            at = rest.index(scale)
            count = _below_thousand(rest[:at])
            if count is None:
                return None
            total += count * size
            rest = rest[at + 1 :]
            if rest[:1] == ["and"]:
                rest = rest[1:]
            if not rest:
                return total
    last = _below_thousand(rest)
    return None if last is None else total + last


def _below_thousand(words: list[str]) -> int | None:
    """Hundreds and what follows; also "fifteen hundred"."""
    if "hundred" not in words:
        return _below_hundred(words)
    at = words.index("hundred")
    count = _below_hundred(words[:at])
    rest = words[at + 1 :]
    if rest[:1] == ["and"]:
        rest = rest[1:]
    below = _below_hundred(rest) if rest else 0
    return None if count is None or below is None else 100 * count + below


def _below_hundred(words: list[str]) -> int | None:
    if len(words) == 1:
        return _UNITS.get(words[0], _TENS.get(words[0]))
    if len(words) == 2 and words[0] in _TENS and 0 < _UNITS.get(words[1], 0) < 10:
        return _TENS[words[0]] + _UNITS[words[1]]
    return None


def as_words(text: str) -> str | None:
    r"""The folded text of an answer that is words and nothing else, `\text` wrappers left out; None otherwise.

    Letters that read as a product of symbols ("x", "ab", "pqr", "x y") are no words, unless some of it stands in
    `\text`.
    """
    is_marked = "\\" in text
    bare = " ".join(_TEXT.sub(r" \1 ", text).split()) if is_marked else text.strip()
    if not _PROSE.fullmatch(bare):
        return None
    folded = bare.casefold()
    if folded in _CONSTANTS or not (is_marked or _is_word_like(bare)):
        return None
    return bare if len(bare) == 1 else _ARTICLES.sub("", folded)


def letters_of(text: str) -> str | None:
    """The folded letters of a bare run of two letters or more, which may be a word as well as a product."""
    bare = _TEXT.sub(r"\1", text).strip()
    if not bare.isascii() or not bare.isalpha():
        return None
    return bare if len(bare) == 1 else bare.lower()


def _is_word_like(bare: str) -> bool:
    words = re.split(r"[ -]", bare)
    if not bare.isascii():
        return True
    if len(words) > 1:
        return any(len(word) > 1 for word in words)
    if len(bare) <= 2:
        return bare.lower() in _SHORT_WORDS
    if len(bare) > 4:
        return True
    steps = [ord(after) - ord(before) for before, after in itertools.pairwise(bare)]
    is_unknowns = bare.islower() and not _VOWELS.intersection(bare)
    is_coefficients = bare.islower() and bare[0] == "a" and not _VOWELS.intersection(bare[1:]) and min(steps) > 0
    return not (is_unknowns or is_coefficients or set(steps) == {1})
