"""The fast path: plain numbers as exact fractions, by one regular expression and without any library."""

from __future__ import annotations

import re
from fractions import Fraction

_INTEGER = r"\d{1,3}(?:,\d{3})+|\d{1,40}"
_NUMBER = re.compile(
    rf"""\s*(?:\$|\\\(|\\\[)?\s*
    (?P<sign>[+-]?)
    (?:
        \\[dt]?frac\{{(?P<num>-?\d{{1,40}})\}}\{{(?P<den>-?\d{{1,40}})\}}
      | (?P<top>\d{{1,40}})\s*/\s*(?P<bottom>\d{{1,40}})
      | (?P<whole>{_INTEGER})?(?:\.(?P<digits>\d{{0,40}}))?
    )
    \s*(?:\$|\\\)|\\\])?\.?\s*""",
    re.VERBOSE | re.ASCII,
)


def plain_number(text: str) -> Fraction | int | None:
    r"""The value of "42", "-1,234.50", "3/4", "\frac{3}{4}" or one of them between dollars; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    whole, digits = match["whole"], match["digits"]
    if match["num"] is not None:
        return _signed(match["sign"], int(match["num"]), int(match["den"]))
    if match["top"] is not None:
        return _signed(match["sign"], int(match["top"]), int(match["bottom"]))
    if whole is None and not digits:
        return None
    integer = (whole or "").replace(",", "") + (digits or "")
    return _signed(match["sign"], int(integer), 10 ** len(digits or ""))


def _signed(sign: str, numerator: int, denominator: int) -> Fraction | int | None:
    if denominator == 0:
        return None
    signed = -numerator if sign == "-" else numerator
    return signed if denominator == 1 else Fraction(signed, denominator)
