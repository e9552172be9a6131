"""What is no formula: numbers in words, dates, numerals in a base, compound quantities, prose."""

from __future__ import annotations

import re
from fractions import Fraction

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.reading.build import negative
from roll_verifier_math.reading.dates import read_moment
from roll_verifier_math.reading.nodes import App, Listing, Node, Num, Numeral, Quantity, Sym, Words
from roll_verifier_math.reading.split import split_items
from roll_verifier_math.reading.unit_names import NAMES
from roll_verifier_math.reading.units import Unit, parse_unit, sign_unit
from roll_verifier_math.reading.words import NUMBER_WORDS, as_words, number_in_words

_BASED = re.compile(r"\(?\s*(?:(?:\\text\s*)?\{)?\s*([0-9A-Fa-f]{1,60})\s*\}?\s*\)?\s*_\s*\{?\s*(\d{1,3})\s*\}?")
_CLOCK = re.compile(r"(\d{1,2})\s*:\s*([0-5]\d)")
_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:\\text\s*\{\s*([A-Za-z]+)\s*\}|([A-Za-z]+))\s*(?:,|and|\\text\s*\{\s*and\s*\})?\s*"
)
_SEXAGESIMAL = re.compile(r"(\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(?:(\d+)\s*')(?:\s*(\d+(?:\.\d+)?)\s*(?:''|\"))?")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORDY = re.compile(r"[^\W\d_]{3,}")
_PROSE = re.compile(r"[^\W\d_][^\\{}^_=<>|]*")
_ORDINAL = re.compile(r"(\d{1,6})\s*(?:\^\s*)?(?:\\text\s*)?\{?\s*(?:\\text\s*\{)?\s*(?:st|nd|rd|th)\s*\}{0,2}")
_RATIO_WORDS = re.compile(r"(\d{1,9}(?:\.\d+)?)\s+to\s+(\d{1,9}(?:\.\d+)?)")
_INFINITE = re.compile(r"(?:(negative|minus)|positive|plus)\s+infinity", re.IGNORECASE)
_MONEY = re.compile(r"\\?([$€£¥])\s*(?=\d)")
_MEASURED = re.compile(r"[a-zA-Z]\s*\\text\s*\{\s*(?:" + "|".join(name for name in NAMES if name.isalpha()) + r")\s*\}")
"""A symbol with a unit, as in `x\\text{ cm}`."""
_FOLD = re.compile(r"[\W_]+")


def number_words(text: str) -> Node | None:
    """A number in words, alone or before a unit: "three", "three apples", "$2.5 million", "negative infinity"."""
    if not _WORDY.search(text):
        return None
    if infinite := _INFINITE.fullmatch(text):
        return negative(Sym("infty")) if infinite[1] else Sym("infty")
    if (money := _MONEY.match(text)) and (value := number_in_words(text[money.end() :])) is not None:
        return _quantity(value, sign_unit(money[1]))
    return _counted(text)


def _counted(text: str) -> Node | None:
    words = _TEXT.sub(r" \1 ", text).replace("\\frac", " \\frac").split()
    if not any(word.strip("-").lower().partition("-")[0] in NUMBER_WORDS for word in words[:3]):
        return None
    for end in range(len(words), 0, -1):
        value = number_in_words(" ".join(words[:end]))
        if value is None:
            continue
        if end == len(words):
            return Num(value)
        unit = parse_unit(" ".join(words[end:]))
        return None if unit is None else _quantity(value, unit)
    return None


def _quantity(value: Fraction, unit: Unit) -> Quantity:
    return Quantity(Num(value), unit.factor, unit.powers)


def moment(text: str) -> Node | None:
    """A date, a time of day, an ordinal, a ratio in words; `3:30` stays open between a time and a ratio."""
    if ordinal := _ORDINAL.fullmatch(text):
        return App("ordinal", (Num(Fraction(ordinal[1])),))
    if ratio := _RATIO_WORDS.fullmatch(text):
        return App("ratio", (Num(Fraction(ratio[1])), Num(Fraction(ratio[2]))))
    if clock := _CLOCK.fullmatch(text):
        return App("clock", (Num(Fraction(clock[1])), Num(Fraction(clock[2]))))
    return read_moment(text)


def numeral(text: str) -> Node | None:
    """Digits with a base, as in `1011_2`."""
    if "_" not in text:
        return None
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    digits, base = match[1].upper(), int(match[2])
    is_symbol = not any(d.isdigit() for d in digits) and (len(digits) == 1 or (match[1].islower() and base != 16))
    if is_symbol or not 2 <= base <= 36:
        return None
    if any(int(digit, 36) >= base for digit in digits):
        raise RefusedError(f"{digits} has digits that base {base} lacks")
    return Numeral(digits.lstrip("0") or "0", base)


def compound(text: str) -> Node | None:
    """A sum in one dimension: "2 hours 15 minutes", "5 ft 3 in", "60° 30'"."""
    if match := _SEXAGESIMAL.fullmatch(text):
        degrees = Fraction(match[1]) + Fraction(match[2]) / 60 + Fraction(match[3] or 0) / 3600
        return Quantity(Num(degrees), Fraction(1), (("degree", 1),))
    position, total, found = 0, Fraction(0), []
    while (part := _PART.match(text, position)) and part.end() > position:
        unit = parse_unit(part[2] or part[3])
        if unit is None:
            return None
        found.append(unit)
        total += Fraction(part[1]) * unit.factor
        position = part.end()
    if position < len(text) or len(found) < 2 or len({unit.powers for unit in found}) > 1:
        return None
    if len({unit.factor for unit in found}) < len(found):
        return None
    first = found[0]
    return Quantity(Num(total / first.factor), first.factor, first.powers)


def words(text: str) -> Node | None:
    """Words and nothing else, as a list where "and" or "or" stands between them."""
    folded = None if _MEASURED.fullmatch(text) else as_words(text)
    if folded is None:
        return None
    parts = split_items(folded) if " and " in folded or " or " in folded else None
    if parts is not None and len(parts.items) > 1 and all(parts.items):
        if all(len(item) == 1 or number_in_words(item) is not None for item in parts.items):
            return None
        return Listing(tuple(Words(item) for item in parts.items), parts.joint)
    return Words(folded)


def prose(text: str) -> Node | None:
    """Words with figures and signs among them, which no formula has."""
    plain = _TEXT.sub(r" \1 ", text)
    if not _PROSE.fullmatch(plain.strip()) or not _WORDY.search(plain):
        return None
    return Words(_FOLD.sub(" ", plain.casefold()).strip())
