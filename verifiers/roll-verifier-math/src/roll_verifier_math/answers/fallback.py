"""The last formula or number of a response that announces no answer, when the response commits itself to it."""

from __future__ import annotations

import re

_NEAR = 400
"""Most responses have their last value within so many characters of their end."""
_SHORT = 64
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?\s?(?:\\?\$\s?)?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:\s*/\s*\d+|\s\d+/\d+)?(?:\s*\\?%)?(?!\w)"
)
_MATH = re.compile(
    r"\$\$(.{1,500}?)\$\$|(?<!\\)\$((?:\\.|[^$\n\\]){1,500})\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]", re.DOTALL
)
_DENIED = re.compile(
    r"(?:\bnot|n't|\bcannot|\bnever|rather than|instead of|\bthan|anything but|far from|differs? from|different from|"
    r"other than|except)\s+(?:be\s+)?$",
    re.IGNORECASE,
)
_OPEN = re.compile(r"\b(?:could|might|may|maybe|perhaps|possibly|alternatively|either)\b", re.IGNORECASE)
_ALTERNATIVE = re.compile(r"\bor\b[\s$*(]*(?:maybe|perhaps|possibly|even)?[\s$*(]*$", re.IGNORECASE)
_IGNORANT = re.compile(
    r"\b(?:(?:do|does|did|can|could|am|is|was)\s*(?:not|n't)|cannot|don't|can't|not)\s+(?:\w+\s+)?"
    r"(?:know|decide|determine|tell|sure|certain|solve|find|say|answer)\b|\bno idea\b|\bunable to\b|\bg[ia]ve up\b|"
    r"\bout of time\b|\bstuck\b|\bimpossible to\b|\bsorry\b|\bfail(?:ed)? to\b",
    re.IGNORECASE,
)
_SENTENCE_START = re.compile(r"(?:[.!?。]\s|\n)(?!.*(?:[.!?。]\s|\n))", re.DOTALL)
_LISTED = re.compile(
    r"(?:(?:(?<![\w.])-?\d+(?:\.\d+)?(?:/\d+)?|\$[^$\n]{1,60}\$)(?:\s*[,;]\s*(?:and\s+)?|\s+and\s+))+$"
)
_ENDED = re.compile(r"[\s.$*)]*$")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_FORMULA_ONLY = re.compile(r"(?:\\[a-zA-Z]+|\b(?:and|or)\b|[^\w\n]|[\d_])*")
_RAW_LATEX = re.compile(r"(?:\b(?:is|are|equals|get|gives|obtain|have)\b|=)\s*:?\s*([^=]*\\[a-zA-Z]+[^=]*)$")


def last_value(response: str) -> str | None:
    """The last formula or number; the whole response when it is short and has none."""
    text = response.rstrip()
    if not text or _IGNORANT.search(text[-200:]):
        return None
    if len(text) <= _SHORT and _FORMULA_ONLY.fullmatch(text):
        return text.strip()
    near = text[text.rfind("\n", 0, max(0, len(text) - _NEAR)) + 1 :]
    spot = _last_spot(near)
    if spot is None and len(near) < len(text):
        near = text
        spot = _last_spot(near)
    if spot is None:
        return text.strip() if len(text) <= _SHORT and "\n" not in text.strip() else None
    return _committed(near, spot)


def _last_spot(text: str) -> re.Match[str] | None:
    """The last formula or number that is not denied."""
    formulas, numbers = list(_MATH.finditer(text)), list(_NUMBER.finditer(text))
    while formulas or numbers:
        is_formula = bool(formulas) and (not numbers or formulas[-1].end() >= numbers[-1].end())
        spot = formulas[-1] if is_formula else numbers[-1]
        if not _DENIED.search(text[: spot.start()]):
            return spot
        (formulas if is_formula else numbers).pop()
        numbers = [number for number in numbers if number.end() <= spot.start()]
    return None


def _committed(text: str, spot: re.Match[str]) -> str | None:
    """The value, unless its sentence leaves open whether it is meant."""
    before, after = text[: spot.start()], text[spot.end() :]
    start = _SENTENCE_START.search(before)
    sentence = before[start.end() :] if start else before
    if after.lstrip("$) \\").startswith("?"):
        return None
    if any(character.isdigit() for character in sentence) and (_OPEN.search(sentence) or _ALTERNATIVE.search(sentence)):
        return None
    value = next((group for group in spot.groups() if group is not None), spot[0])
    if _ENDED.fullmatch(after) and (listed := _LISTED.search(sentence)):
        return listed[0] + spot[0]
    if spot.lastindex is None and "\\" in sentence + after:
        raw = _RAW_LATEX.search((sentence + spot[0] + after).rstrip(" .*"))
        if raw and not _WORD.search(raw[1]) and "$" not in raw[1]:
            return raw[1].strip()
    return value.strip()
