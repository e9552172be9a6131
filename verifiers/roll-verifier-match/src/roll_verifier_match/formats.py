"""The formats of JSON Schema that are checked, in time linear in the text and with no further package."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable

from jsonschema import FormatChecker

from roll_verifier_match.bounded import BadPatternError, compiled

MAX_CHARS = 2_000
"""Longer texts have no format."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|([+-])(\d{2}):(\d{2}))", re.ASCII)
_DURATION = re.compile(
    r"P(?:\d+W|(?=\d|T)(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
)
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)", re.ASCII)
_ESCAPED = r"%[0-9A-Fa-f]{2}"
_PATH = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|{_ESCAPED})*"
_AUTHORITY = (
    rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_ESCAPED})*@)?"
    rf"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_ESCAPED})*)(?::\d*)?(?=[/?#]|$)"
)
_TAIL = rf"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|{_ESCAPED})*)?(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|{_ESCAPED})*)?"
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}{_PATH}|(?!//){_PATH}){_TAIL}")
_RELATIVE = re.compile(rf"(?://{_AUTHORITY}{_PATH}|(?!//)(?![^/?#]*:){_PATH}){_TAIL}")


def format_checker() -> FormatChecker:
    """A checker of these formats; others say nothing, as the specification allows."""
    checker = FormatChecker(formats=())
    for name, fits in _FORMATS.items():
        checker.checks(name)(_of_text(fits))
    return checker


def _of_text(fits: Callable[[str], bool]) -> Callable[[object], bool]:
    def check(instance: object) -> bool:
        return not isinstance(instance, str) or (len(instance) <= MAX_CHARS and fits(instance))

    return check


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second = (int(match[i]) for i in (1, 2, 3))
    shift_hours, shift_minutes = int(match[5] or 0), int(match[6] or 0)
    if hour > 23 or minute > 59 or second > 60 or shift_hours > 23 or shift_minutes > 59:
        return False
    shift = (shift_hours * 60 + shift_minutes) * (-1 if match[4] == "-" else 1)
    return second < 60 or (hour * 60 + minute - shift) % 1440 == 1439  # a leap second ends the day in UTC


def _is_date_time(text: str) -> bool:
    return len(text) > 11 and text[10] in "Tt" and _is_date(text[:10]) and _is_time(text[11:])


def _is_host_name(text: str) -> bool:
    return len(text) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in text.split("."))


def _is_email(text: str) -> bool:
    local, at, host = text.rpartition("@")
    return bool(at) and len(local) <= 64 and _LOCAL.fullmatch(local) is not None and _is_host_name(host)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return text.isascii()


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return text.isascii() and "%" not in text


def _is_regex(text: str) -> bool:
    try:
        compiled(text)
    except BadPatternError:
        return False
    return True


def _matching(*patterns: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: any(pattern.fullmatch(text) for pattern in patterns)


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": _matching(_DURATION),
    "email": _is_email,
    "hostname": _is_host_name,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "uuid": _matching(_UUID),
    "uri": _matching(_URI),
    "uri-reference": _matching(_URI, _RELATIVE),
    "json-pointer": _matching(_POINTER),
    "relative-json-pointer": _matching(_RELATIVE_POINTER),
    "regex": _is_regex,
}
