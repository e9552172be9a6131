r"""Repeating decimals, in the notations for them, as fractions."""

from __future__ import annotations

import re

_DOTS = r"\\dot\s*(?:\{(\d)\}|(\d))"
_TWO_DOTS = re.compile(rf"(\d*)\.(\d*){_DOTS}(\d*){_DOTS}")
_LINE = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{\s*(\d{1,40})\s*\}|(\d))")
_BRACKETS = re.compile(r"(?<![\w.])(\d+)\.(\d*)\((\d{1,40})\)(?![\d.])")
_ELLIPSIS = re.compile(r"(?<![\w.])(\d*)\.(\d{3,60})\s*(?:\\l?dots|\.\.\.)")


def spelled_out(text: str) -> str:
    r"""The text with `0.\overline{3}`, `0.\dot{3}`, `0.(3)` and `0.333...` as fractions."""
    if "." not in text:
        return text
    if "\\" in text:
        text = _TWO_DOTS.sub(lambda m: _fraction(m[1], m[2], (m[3] or m[4]) + m[5] + (m[6] or m[7])), text)
        text = _LINE.sub(lambda m: _fraction(m[1], m[2], m[3] or m[4]), text)
    if "(" in text:
        text = _BRACKETS.sub(lambda m: _fraction(m[1], m[2], m[3]), text)
    return _ELLIPSIS.sub(_continued, text)


def _fraction(whole: str, fixed: str, period: str) -> str:
    nines = 10 ** len(period) - 1
    numerator = int((whole or "0") + fixed) * nines + int(period)
    return f"(\\frac{{{numerator}}}{{{nines * 10 ** len(fixed)}}})"


def _continued(match: re.Match[str]) -> str:
    """Digits that visibly repeat at their end: one digit three times, or several digits twice."""
    whole, digits = match[1], match[2]
    for length in range(1, len(digits) // 2 + 1):
        period = digits[-length:]
        times = 3 if length == 1 else 2
        if digits.endswith(period * times):
            fixed = digits
            while fixed.endswith(period):
                fixed = fixed[:-length]
            return _fraction(whole, fixed, period)
    return match[0]
