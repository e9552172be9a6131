"""Reading one value of a scale out of text, exactly where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from roll_verifier_judge.scales import BoolScale, LabelScale, NumberScale
from roll_verifier_judge.text import fold


@dataclass(frozen=True, slots=True)
class Found:
    """A value and the position behind it."""

    value: Any
    end: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No value can be read; the reason is a word for the record."""

    reason: str


class Reader(Protocol):
    """Reads a value of one scale."""

    is_number: bool

    def read_at(self, text: str, start: int) -> Found | Refused:
        """The value that begins at `start`."""
        ...


_OPENING = re.compile(
    r"""(?:\n\s*[-•]\s+|\s|[*_`#"'“”‘’«»「『(\[{$|:=]|</?(?:b|strong|em|i|u|span|p|code|mark|br)\s*/?>"""
    r"""|\\[a-zA-Z]{1,12}\s*\{|\\[(\[]|<(?=[^<>\n]{1,20}>)|[\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff])*"""
)
"""Markup that may stand before a value."""
_CLOSING = re.compile(r"""(?:[*_`"'“”‘’»」』)\]}>$|]|\\[)\]]|</[a-zA-Z]{1,10}>)*""")
"""Markup that may stand right behind a value."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_UNIT = (
    r"(?:points?|pts?\.?|stars?|marks?|分|点(?:です)?|점(?:입니다)?|punkten?|puntos?|pontos?|punti|балл(?:а|ов)?|puan)"
)
_AFTER_NUMBER = re.compile(
    rf"(?:\s?{_UNIT}(?![^\W\d]))?(?:[\s*_`]{{0,6}}(?:/|out\s+of|of|von|sobre|su|sur|из|aus|av|van)[\s*_`]{{0,6}}"
    rf"(?P<most>\d+(?:\.\d+)?)(?:\s?{_UNIT}(?![^\W\d]))?|\s?(?P<percent>%|percent\b|per\s+cent\b))?",
    re.IGNORECASE,
)
_WORDS = {word: value for value, word in enumerate(
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))}  # fmt: skip
_NUMBER_WORD = re.compile(rf"(?:{'|'.join(_WORDS)})\b(?=[^\w\n]*(?:\n|$))", re.IGNORECASE)
_MAX_DIGITS = 40


class NumberReader:
    """Numbers, `n/max`, `n out of max`, and `n%` where the maximum is 100."""

    is_number = True

    def __init__(self, scale: NumberScale) -> None:
        self.scale = scale

    def read_at(self, text: str, start: int) -> Found | Refused:
        """The number that begins at `start`."""
        match = _NUMBER.match(text, start)
        if match is None:
            word = _NUMBER_WORD.match(text, start)
            return Refused("not_a_number") if word is None else self._checked(_WORDS[word[0].lower()], word.end())
        value = number_of(match[0])
        if value is None:
            return Refused("two_values" if "," in match[0] else "not_a_number")
        more = _AFTER_NUMBER.match(text, match.end())
        end = match.end() if more is None else more.end()
        if text[end : end + 1].isalnum() or text[end : end + 1] == "_":
            return Refused("not_a_number")
        if more is not None and more["percent"] and self.scale.max != 100:
            return Refused("other_scale")
        if more is not None and more["most"] and float(more["most"]) != self.scale.max:
            return Refused("other_scale")
        return self._checked(value, end)

    def of_json(self, value: Any) -> Any | Refused:
        """A number out of a JSON value; numbers as strings are read."""
        if isinstance(value, str):
            return read_whole(self, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return Refused("no_verdict" if value is None else "not_a_number")
        found = self._checked(value, 0)
        return found.value if isinstance(found, Found) else found

    def _checked(self, value: float, end: int) -> Found | Refused:
        if not self.scale.min <= value <= self.scale.max:  # nan and the infinities too
            return Refused("out_of_range")
        if self.scale.integer:
            return Found(int(value), end) if value == int(value) else Refused("not_an_integer")
        return Found(value, end)


class LabelReader:
    """One of several labels, as a whole word, in any case."""

    is_number = False

    def __init__(self, labels: Iterable[tuple[str, Any]]) -> None:
        declared = {fold(label): value for label, value in labels}
        self.by_name = declared
        longest_first = sorted(declared, key=lambda name: (-len(name), name))
        self._pattern = re.compile("|".join(map(_flexible, longest_first)), re.IGNORECASE)

    def read_at(self, text: str, start: int) -> Found | Refused:
        """The label that begins at `start`."""
        match = self._pattern.match(text, start)
        if match is None or _goes_on(text, match.end()):
            return Refused("not_a_label")
        return Found(self.by_name[fold(match[0])], match.end())

    def of_json(self, value: Any) -> Any | Refused:
        """A label out of a JSON value."""
        if value is None:
            return Refused("no_verdict")
        if isinstance(value, bool | int | float | str) and fold(str(value)) in self.by_name:
            return self.by_name[fold(str(value))]
        return Refused("not_a_label")


def reader_of(scale: NumberScale | BoolScale | LabelScale) -> NumberReader | LabelReader:
    """The reader of a scale that has a single value."""
    if isinstance(scale, NumberScale):
        return NumberReader(scale)
    if isinstance(scale, BoolScale):
        return LabelReader([("true", True), ("false", False)])
    return LabelReader([(str(label), label) for label in scale.labels])


def read_whole(reader: Reader, text: str) -> Any | Refused:
    """The value that `text` consists of, markup and a full stop aside."""
    found = reader.read_at(text, opening_end(text, 0))
    if isinstance(found, Refused):
        return found if text.strip() else Refused("no_verdict")
    rest = text[closing_end(text, found.end) :]
    return found.value if rest.strip(".!。*_` \n") == "" else Refused("not_alone")


def opening_end(text: str, start: int) -> int:
    """The position behind markup at `start`."""
    match = _OPENING.match(text, start)
    return start if match is None else match.end()


def closing_end(text: str, start: int) -> int:
    """The position behind closing markup at `start`."""
    match = _CLOSING.match(text, start)
    return start if match is None else match.end()


def number_of(text: str) -> float | None:
    """The value of digits with a decimal point or comma, or thousands separators; None when it is not one number."""
    if len(text) > _MAX_DIGITS:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    elif _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        return float(text) if any(c in text for c in ".eE") else int(text)
    except ValueError:  # several points or commas
        return None


# --- what stands behind a value ---------------------------------------------------------------------------------------

_ALTERNATIVE = re.compile(
    r"[ \t]*(?:[,;]?[ \t]*"
    r"(?:(?:or|and|to|until|versus|vs\.?|oder|bis|ou|et|und|o|u|y|e|à|или)\b|或者?|または|から|至|到)"
    r"(?:[ \t]+(?:maybe|perhaps|possibly|even))?"
    r"|[,;]?[ \t]*(?:maybe|perhaps|possibly)\b|->|=>|\.\.+|[-–—~/|&→,、;])",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[ \t]*[.!。]?[ \t*_`]*(?:\n|$)|[ \t]+[-–—(]|[ \t]*[,;(（—–]")
_ENDS = re.compile(
    r"\s*$|[ \t]*\n|[ \t]*[.,;:!)\]}([{|。，；：！（）、…—–\u2600-\u27bf\U0001f300-\U0001faff]|[ \t]+-{1,3}[ \t]"
)
_INEXACT = re.compile(r"[ \t]*[?~+<>=^&@%？]|-(?:\S|$)")
_BEHIND = re.compile(
    r"[ \t]+(?:because|since|as|due|given|with|for|overall|total|weil|da|porque|parce|car|потому|\w+:)(?![^\W_])",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[ \t]+[A-ZÀ-ÞА-Я]")
_MAYBE = re.compile(r"(?:or|maybe|perhaps|possibly)\b", re.IGNORECASE)
_NEXT_NUMBER = re.compile(r"[ \t]+[+-]?\.?\d")
_LIST_END = re.compile(r"[ \t]*(?:[.,;:!?)]|\n|$)")
_IN_BRACKETS = re.compile(r"[ \t]*[(\[][ \t]*([^()\[\]\n]{1,40})[)\]]")


def tail_problem(reader: Reader, text: str, found: Found, *, is_new_line: bool) -> str:
    """Why what follows a value makes it no single value; empty when it is one.

    Args:
        reader: of the scale.
        text: the whole text.
        found: the value in it.
        is_new_line: the value stands on another line than its name, where "1." may number a list.
    """
    end = closing_end(text, found.end)
    if _has_alternative(reader, text, found, end):
        return "two_values"
    rest = text[end : end + 200]
    if _INEXACT.match(rest):
        return "not_exact"
    if is_new_line:
        return "" if _ALONE.match(rest) else "followed_by_text"
    is_end = _ENDS.match(rest) or _BEHIND.match(rest) or (reader.is_number and _SENTENCE.match(rest))
    return "" if is_end else "followed_by_text"


def _has_alternative(reader: Reader, text: str, found: Found, end: int) -> bool:
    """Whether a second value stands beside the one that ends at `end`: a range, an alternative, a list."""
    brackets = _IN_BRACKETS.match(text, end)
    if brackets is not None:
        inside = read_whole(reader, brackets[1])
        return bool(_MAYBE.match(brackets[1])) or not (isinstance(inside, Refused) or inside == found.value)
    connector = _ALTERNATIVE.match(text, end)
    if connector is None:
        is_pair = reader.is_number and _NEXT_NUMBER.match(text, end)
        return bool(is_pair) and isinstance(reader.read_at(text, opening_end(text, end)), Found)
    other = reader.read_at(text, opening_end(text, connector.end()))
    if isinstance(other, Refused):
        return False
    is_list = connector[0].strip() in (",", ";", "、")
    return not is_list or reader.is_number or bool(_LIST_END.match(text, other.end))


# --- words ------------------------------------------------------------------------------------------------------------


def _flexible(name: str) -> str:
    return r"\s+".join(re.escape(part) for part in name.split(" "))


def _goes_on(text: str, end: int) -> bool:
    """Whether a word that ends at `end` is part of a longer one."""
    before, after, second = text[end - 1 : end], text[end : end + 1], text[end + 1 : end + 2]
    if after.isalnum() or after == "_":
        return not (_is_wide(before) and after in "的です입")
    if after in ("'", "’", "-", "=", "!", "<", ">") and after:
        return (second.isalnum() and after != "!") or (after in "=<>!" and second in tuple("=<>"))
    return False


def _is_wide(character: str) -> bool:
    return character >= "\u2e80"
