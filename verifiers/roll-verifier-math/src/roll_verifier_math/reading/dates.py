"""Dates and times of day."""

from __future__ import annotations

import re

from roll_verifier_math.reading.nodes import Moment
from roll_verifier_math.reading.words import number_in_words

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH_NUMBERS = {
    **{month: number for number, month in enumerate(_MONTHS, 1)},
    **{month[:3]: number for number, month in enumerate(_MONTHS, 1)},
    "sept": 9,
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30,
}  # fmt: skip
_MONTH = "(?P<month>" + "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True)) + r")\.?"
_DAY = r"(?P<day>\d{1,2}(?:\s*(?:st|nd|rd|th|\^\s*\{?\s*(?:st|nd|rd|th)\s*\}?))?|[a-z]+(?:-[a-z]+)?)"
_YEAR = r"(?P<year>\d{4})"
_WEEKDAY = "(?:(?P<weekday>" + "|".join(_WEEKDAYS) + r")\s*,?\s+(?:the\s+)?)?"
_HALF = r"(?P<half>[ap])\s*\.?\s*m\b\.?"
_CLOCK = rf"(?P<hour>\d{{1,2}})(?:\s*:\s*(?P<minute>\d{{2}})(?:\s*:\s*(?P<second>\d{{2}}))?)?(?:\s*{_HALF})?"
_DATES = tuple(
    re.compile(rf"{_WEEKDAY}{form}")
    for form in (
        rf"{_MONTH}\s+(?:the\s+)?{_DAY}(?:\s*,?\s+{_YEAR})?",
        rf"(?:the\s+)?{_DAY}\s+(?:day\s+)?(?:of\s+)?{_MONTH}(?:\s*,?\s+(?:of\s+)?{_YEAR})?",
        rf"{_MONTH}\s*,?\s+(?:of\s+)?{_YEAR}",
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        r"(?P<one>\d{1,2})[/.](?P<two>\d{1,2})[/.](?P<year>\d{4})",
    )
)
_TIME = re.compile(rf"(?:at\s+)?{_CLOCK}(?:\s*o'?clock)?")
_HINT = re.compile(
    r"\d\s*:\s*\d|\d\s*\.?\s*[ap]\s*\.?\s*m\b|\d{4}[-/.]\d|[-/.]\d{4}|o'?clock|"
    r"noon|midnight|jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec",
    re.IGNORECASE,
)
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_NAMED_TIMES = {"noon": 12, "midnight": 0, "12 noon": 12, "12 midnight": 0, "12:00 noon": 12, "12:00 midnight": 0}


def read_moment(text: str) -> Moment | None:
    """The date or time of day that a text is, as a whole; None for anything else, and for ambiguous dates.

    "3:30" is left to the reader of ratios; `as_time` turns such a ratio into a time when the other side is one.
    """
    if len(text) > 60 or not _HINT.search(text):
        return None
    plain = " ".join(_TEXT.sub(r" \1 ", text).lower().split()).strip(" ,")
    if plain in _NAMED_TIMES:
        return Moment(hour=_NAMED_TIMES[plain])
    for pattern in _DATES:
        if match := pattern.fullmatch(plain):
            return _date(match)
    match = _TIME.fullmatch(plain)
    if match is None or (match["half"] is None and match["second"] is None and "clock" not in plain):
        return None
    return _time(match)


def as_time(hour: str, minute: str) -> Moment | None:
    """The time that a ratio such as `3:30` may be."""
    match = _TIME.fullmatch(f"{hour}:{minute}")
    return _time(match) if match else None


def _date(match: re.Match[str]) -> Moment | None:
    groups = match.groupdict()
    if groups.get("one"):
        return _slashed(int(groups["one"]), int(groups["two"]), int(groups["year"]))
    month = _MONTH_NUMBERS.get(groups["month"]) or int(groups["month"])
    day = _day(groups["day"]) if groups.get("day") else None
    year = int(groups["year"]) if groups.get("year") else None
    if not 1 <= month <= 12 or (groups.get("day") and (day is None or not 1 <= day <= 31)):
        return None
    return Moment(year, month, day, groups.get("weekday"))


def _slashed(one: int, two: int, year: int) -> Moment | None:
    """Day and month in either order: read only where a single order is possible."""
    orders = {(day, month) for day, month in ((one, two), (two, one)) if 1 <= day <= 31 and 1 <= month <= 12}
    if len(orders) != 1:
        return None
    day, month = orders.pop()
    return Moment(year, month, day)


def _day(text: str) -> int | None:
    if text[0].isdigit():
        digits = re.match(r"\d+", text)
        return int(digits[0]) if digits else None
    tens, _, units = text.rpartition("-")
    if tens:
        base = number_in_words(tens)
        return int(base) + _ORDINALS[units] if base and units in _ORDINALS else None
    return _ORDINALS.get(text)


def _time(match: re.Match[str]) -> Moment | None:
    hour, minute, second = int(match["hour"]), int(match["minute"] or 0), int(match["second"] or 0)
    half = match["half"]
    if minute > 59 or second > 59 or hour > (12 if half else 23) or (half and hour == 0):
        return None
    if half:
        return Moment(hour=hour % 12 + (12 if half == "p" else 0), minute=minute, second=second)
    return Moment(hour=hour, minute=minute, second=second, is_half_known=hour > 12 or hour == 0)
