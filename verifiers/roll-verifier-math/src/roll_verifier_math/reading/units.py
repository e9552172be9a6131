"""Units and currencies at the edges of an answer, as products of base units."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from roll_verifier_math.reading.unit_names import ABBREVIATED, NAMES, NOT_UNITS, PREFIX_SIGNS, REMARKS, SYMBOLIC
from roll_verifier_math.reading.words import as_words

_VALUE_END = r"[\d})\]!%]"
_TEXT_GROUP = r"\\text\s*\{[^{}]*\}"
_POWER = r"(?:\s*\^\s*\{?\s*-?\d\s*\}?)?"
_PREFIX = re.compile(r"^(-?)\s*(\\\$|\$|€|£|¥|₹|₽|₩|US\\?\$)\s*(?=[\d.(\\-])")
_TEXT_UNIT = re.compile(
    rf"^(?P<value>.*(?:{_VALUE_END}|[A-Za-z]|\\pi)(?<!circ)(?<!circ\}}))\s*(?P<unit>(?:\^\s*\{{?\s*\\circ\s*\}}?\s*)?{_TEXT_GROUP}{_POWER}"
    rf"(?:\s*(?:/|\\cdot)?\s*{_TEXT_GROUP}{_POWER})*)$"
)
_DEGREE = re.compile(rf"^(?P<value>.*{_VALUE_END}|\\pi)\s*(?P<unit>\^\s*\{{?\s*\\circ\s*\}}?(?:\s*\{{?[CFK]\}}?)?)$")
_OHM = re.compile(rf"^(?P<value>.*{_VALUE_END})\s*(?P<unit>\\Omega)$")
_WORD_UNIT = re.compile(
    rf"^(?P<value>.*{_VALUE_END})(?P<gap>\s*)(?P<unit>[A-Za-z€£¥₹¢$]+(?:[ ]+[A-Za-z]+){{0,4}}{_POWER}"
    rf"(?:\s*/\s*[A-Za-z]+{_POWER})?|\\\$)$"
)
_BARE_VALUE = re.compile(r"[-+]?\s*(?:\d|\\frac|\.\d|\\sqrt|\\pi|\().*", re.DOTALL)
_PERCENT = re.compile(
    rf"^(.*{_VALUE_END})\s*(?:\\text\s*\{{\s*)?(?:percentage(?:\s+points?)?|percent|per\s*cent|pct)\s*\}}?$",
    re.IGNORECASE,
)
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORD_POWER = re.compile(r"(.*?)\s*\^\s*\{?\s*(-?\d)\s*\}?")
_DEGREE_SIGN = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")
_NO_NOUN_ENDINGS = (
    "ly", "wards", "wise", "illion", "illions", "teen", "fold", "teenth", "teenths", "tieth", "tieths", "undredths",
    "usandths", "illionth", "illionths",
)  # fmt: skip
_VOWEL = re.compile(r"[aeiou]")
_UNIT_TEXT = re.compile(r"(?:[A-Za-z€£¥₹¢$%](?:[A-Za-z .,'/*-]|\\cdot|\^\s*\{?\s*-?\d\s*\}?)*|\\Omega)")
_LETTERS = re.compile(r"[A-Za-z€£¥₹¢$]+")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit's size in base units, and the base units with their exponents, sorted."""

    factor: Fraction
    powers: tuple[tuple[str, int], ...]


def split_unit(text: str, *, loose: bool = False) -> tuple[str, Unit | None]:
    """The text without its unit, and the unit (None when there is none).

    Args:
        text: a normalised answer.
        loose: whether a lone letter behind a number may be a unit ("5 m"), since the other side has one.
    """
    if percent := _PERCENT.match(text):
        return f"{percent[1]}\\%", None
    if prefix := _PREFIX.match(text):
        sign = PREFIX_SIGNS[prefix[2].replace("\\", "")]
        rest = text[prefix.end() :]
        value, inner = split_unit(rest)
        currency = sign_unit(sign)
        if inner is not None and inner.powers != currency.powers:  # "$18 per day"
            currency = _multiplied(currency, inner)
        return prefix[1] + value, currency
    for pattern in (_TEXT_UNIT, _DEGREE, _OHM):
        if match := pattern.match(text):
            unit = parse_unit(_TEXT.sub(r" \1 ", match["unit"]))
            return (match["value"], unit) if unit else (text, None)
    match = _WORD_UNIT.match(text)
    if match is None or not _is_unit(match["unit"], match["value"], spaced=bool(match["gap"]), loose=loose):
        return text, None
    unit = parse_unit(match["unit"])
    return (match["value"], unit) if unit else (text, None)


def sign_unit(name: str) -> Unit:
    """The unit of a currency sign."""
    base, factor = NAMES[name]
    return Unit(factor, ((base, 1),))


def _multiplied(one: Unit, two: Unit) -> Unit:
    powers = Counter(dict(one.powers))
    powers.update(dict(two.powers))
    return Unit(one.factor * two.factor, tuple(sorted((base, n) for base, n in powers.items() if n)))


def _is_unit(text: str, value: str, *, spaced: bool, loose: bool) -> bool:
    """Whether plain letters behind a value are a unit rather than a product of symbols."""
    words = _LETTERS.findall(text)
    if any(word.lower() in NOT_UNITS for word in words):
        return False
    if len(words) == 1 and len(words[0]) == 1 and words[0] in SYMBOLIC and _BARE_VALUE.fullmatch(value):
        return loose or (spaced and "\\" not in value) or "^" in text
    if "/" in text:
        return all(word in NAMES for word in words)
    if len(words) > 1 and "^" in text and all(word in NAMES for word in words):
        return spaced
    if text in ABBREVIATED or all(word in NAMES and (len(word) > 1 or not word.isalpha()) for word in words):
        return True
    return spaced and all((word in NAMES and len(word) > 1) or _is_noun(word) for word in words)


def _is_noun(word: str) -> bool:
    """Whether an unknown word may be what is counted: a word rather than letters, and no adverb or share."""
    return (
        len(word) >= 3
        and word.isalpha()
        and not word.isupper()
        and bool(_VOWEL.search(word.lower()))
        and as_words(word) is not None
        and not word.lower().endswith(_NO_NOUN_ENDINGS)
    )


def parse_unit(text: str) -> Unit | None:
    """The unit that words or symbols stand for; None when they cannot be one ("or", "and")."""
    text = _DEGREE_SIGN.sub(" degree ", text).replace("\\$", "$")
    words = re.split(r"[\s/^.-]+", text.lower().strip())
    if not _UNIT_TEXT.fullmatch(text.strip()) or any(word in NOT_UNITS for word in words):
        return None
    if text.strip() in NAMES:
        return _named(text.strip())
    kept = [word for word in text.split() if word.lower() not in REMARKS] or text.split()
    factor, powers, sign, power = Fraction(1), Counter[str](), 1, 1
    unknown: list[str] = []
    for part in _parts(" ".join(kept)):
        if part in ("/", "per"):
            sign = -1
            continue
        if part in ("square", "sq", "cubic", "cu"):
            power = 2 if part.startswith("sq") else 3
            continue
        match = _WORD_POWER.fullmatch(part)
        name, exponent = (match[1], int(match[2])) if match else (part, power)
        known = NAMES.get(name) or (NAMES.get(name.lower()) if len(name) > 2 or name.isupper() else None)
        if not name or (known is None and not _is_noun(name)):
            return None
        if known is None:
            unknown.append(name.lower())
            power = 1
            continue
        base, size = known
        powers[base] += sign * exponent
        factor *= size ** (sign * exponent)
        power = 1
    if unknown:
        powers[_singular(" ".join(unknown))] += 1
    return Unit(factor, tuple(sorted((base, n) for base, n in powers.items() if n)))


def _parts(text: str) -> list[str]:
    text = re.sub(r"\s*\^\s*", "^", text)
    text = re.sub(r"\^\{\s*(-?\d)\s*\}", r"^\1", text)
    text = re.sub(r"\b(degrees?)\s+(c|f|celsius|fahrenheit)\b", r"deg\2", text, flags=re.IGNORECASE)
    text = re.sub(r"\s*\bsquared\b", "^2", re.sub(r"\s*\bcubed\b", "^3", text))
    text = re.sub(r"\b(?:mph|kph|kmh|fps)\b", lambda match: ABBREVIATED[match[0]], text)
    return [part for part in re.split(r"\s*(/|\bper\b)\s*|\\cdot|[\s*.]+", text) if part and part.strip()]


def same_unit(one: Unit, two: Unit) -> Fraction | None:
    """How many of unit `two` make unit `one`; None when they measure different things.

    A "pound" is whichever pound the other side means.
    """
    for pound in (_POUND_MASS, _POUND_MONEY):
        left = pound if one.powers == _POUND and two.powers != _POUND else one
        right = pound if two.powers == _POUND and one.powers != _POUND else two
        if left.powers == right.powers:
            return left.factor / right.factor
    return None


def _named(name: str) -> Unit:
    base, factor = NAMES[name]
    return Unit(factor, ((base, 1),))


def _singular(name: str) -> str:
    return name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else name


_POUND = (("pound", 1),)
_POUND_MASS, _POUND_MONEY = _named("lb"), _named("£")
