"""Units and currencies at the edges of an answer, in one spelling."""

from __future__ import annotations

import re

from roll_verifier_math.words import NUMBER_WORDS

_NAMES = {
    "m": "m meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters",
    "km": "km kilometer kilometers kilometre kilometres",
    "in": "inch inches",
    "ft": "ft foot feet",
    "mi": "mi mile miles",
    "yd": "yd yard yards",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "l": "L l liter liters litre litres",
    "ml": "mL ml milliliter milliliters",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "year years yr yrs",
    "usd": "$ \\$ dollar dollars usd",
    "cent": "cent cents",
    "eur": "€ euro euros eur",
    "gbp": "£ gbp",
    "n": "N newton newtons",
    "j": "J joule joules",
    "w": "W watt watts",
    "v": "V volt volts",
    "hz": "Hz hertz",
    "degree": "^\\circ ^{\\circ} degree degrees",
    "celsius": "C",
    "unit": "unit units",
}
_CANONICAL = {word: unit for unit, words in _NAMES.items() for word in words.split()}
_PLAIN = frozenset(
    [
        "cm",
        "mm",
        "km",
        "kg",
        "mg",
        "lb",
        "lbs",
        "oz",
        "ft",
        "mi",
        "yd",
        "ml",
        "mL",
        "hr",
        "hrs",
        "min",
        "mins",
        "sec",
        "secs",
        "Hz",
        "mph",
        "usd",
        "eur",
    ]
)
_SYMBOLIC = frozenset(["m", "g", "s", "h", "L", "N", "J", "W", "V"])
"""Single letters are units only in a quotient such as "m/s"."""
_NOT_UNITS = (
    frozenset(
        [
            "or",
            "and",
            "not",
            "squared",
            "cubed",
            "factorial",
            "times",
            "plus",
            "minus",
            "over",
            "mod",
            "modulo",
            "if",
            "for",
            "where",
            "is",
            "to",
            "with",
            "when",
            "choose",
            "but",
            "because",
            "since",
            "approximately",
            "about",
            "percent",
            "pi",
            "infinity",
            "than",
            "the",
        ]
    )
    | NUMBER_WORDS
)
_SEPARATE = re.compile(r"\s*(?:/|\bper\b)\s*")
_EXPONENT = re.compile(r"^(.*?)\s*\^\s*\{?(\d)\}?$")
_PREFIX = re.compile(r"^(\\\$|\$|€|£)\s*(?=[\d.(\\-])")
_VALUE_END = r"[\d})\]!]"
_TEXT_UNIT = re.compile(
    rf"^(?P<value>.*{_VALUE_END})\s*(?P<unit>(?:\^\{{?\\circ\}}?\s*)?\\text\s*\{{[^{{}}]*\}}(?:\s*\^\s*\{{?\d\}}?)?(?:\s*/\s*\\text\s*\{{[^{{}}]*\}})?)$"
)
_DEGREE = re.compile(rf"^(?P<value>.*{_VALUE_END})\s*(?P<unit>\^\s*\{{?\\circ\s*\}}?(?:\s*\{{?[CF]\}}?)?)$")
_WORD_UNIT = re.compile(
    rf"^(?P<value>.*{_VALUE_END})\s*(?P<unit>[A-Za-z€£$]+(?:\s+[A-Za-z]+){{0,3}}(?:\s*\^\s*\{{?\d\}}?)?(?:\s*/\s*[A-Za-z]+(?:\s*\^\s*\{{?\d\}}?)?)?)$"
)
_PERCENT = re.compile(rf"^(.*{_VALUE_END})\s*(?:\\text\s*\{{)?\s*percent\s*\}}?$")


def split_unit(text: str) -> tuple[str, str | None]:
    """The text without its unit, and the unit in canonical spelling (None when there is none)."""
    if percent := _PERCENT.match(text):
        return f"{percent[1]}\\%", None
    if prefix := _PREFIX.match(text):
        return text[prefix.end() :], _CANONICAL[prefix[1]]
    for pattern in (_TEXT_UNIT, _DEGREE):
        if match := pattern.match(text):
            unit = _canonical(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", match["unit"]))
            return (match["value"], unit) if unit else (text, None)
    match = _WORD_UNIT.match(text)
    if match is None or not _is_unit(match["unit"]):
        return text, None
    return match["value"], _canonical(match["unit"])


def _is_unit(text: str) -> bool:
    words = re.findall(r"[A-Za-z€£$]+", text)
    if any(word.lower() in _NOT_UNITS for word in words):
        return False
    if "/" in text:
        return all(word in _PLAIN or word in _SYMBOLIC for word in words)
    return all(word in _PLAIN or word in "€£$" or len(word) >= 3 for word in words)


def _canonical(text: str) -> str | None:
    """Words of a unit by the table, exponents kept; None for one that is no unit ("or", "and")."""
    text = " ".join(text.split())
    if text.lower() in _NOT_UNITS or any(word in _NOT_UNITS for word in text.lower().split() if word != "per"):
        return None
    if text == "mph":
        return "mi/h"
    parts = []
    for part in _SEPARATE.split(text):
        match = _EXPONENT.match(part)
        name, power = (match[1], f"^{match[2]}") if match else (part, "")
        words = name.split()
        if words and words[0] in ("square", "cubic", "sq", "cu"):
            power = "^2" if words[0].startswith("sq") else "^3"
            words = words[1:]
        parts.append(" ".join(_CANONICAL.get(w, _CANONICAL.get(w.lower(), w.lower())) for w in words) + power)
    return "/".join(parts)
