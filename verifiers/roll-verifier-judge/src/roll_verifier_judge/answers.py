"""Final answers of a response against a reference that is one exact value: equal, or several of them."""

from __future__ import annotations

import re
from fractions import Fraction

from roll_verifier_judge.text import fold

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3}){1,12}|\d{1,40})(?:\.\d{1,40})?"
_EXACT_NUMBER = re.compile(rf"[$€£]?\s*({_NUMBER})(?:/(\d+))?\s*[%]?")
_OR = (
    r"(?:\b(?:or|oder|ou|o|eller|или|albo|lub|veya|atau|hoặc|maybe|perhaps|possibly|alternatively)\b|或者?|または|또는)"
)
_ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\S)")
_MAX_REFERENCE = 64


def is_exact(reference: str) -> bool:
    """Whether a reference is one short value, so that an answer can be equal to it, and two values are no answer."""
    text = fold(reference)
    return (
        0 < len(text) <= _MAX_REFERENCE
        and "\n" not in reference.strip()
        and not re.search(rf"{_OR}|[,;|]\s", text)
        and len(text.split()) <= 6
    )


def _plain(text: str) -> str:
    """A value without the markup and punctuation around it."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf|boxed)\s*\{([^{}]*)\}", r"\1", text)
    return _ARTICLE.sub("", fold(text).strip(" \t\n.*_`$\"'“”‘’:,;!()[]{}\\"))


def _number(text: str) -> Fraction | None:
    match = _EXACT_NUMBER.fullmatch(text)
    if match is None or len(text) > 40 or match[2] == "0":
        return None
    value = Fraction(match[1].replace(",", ""))
    return value / int(match[2]) if match[2] else value


def is_same(text: str, reference: str) -> bool:
    """Whether a text is a reference, markup, articles, case and ways of writing a number aside."""
    if len(text) > 4 * _MAX_REFERENCE:
        return False
    ours, theirs = _plain(text), _plain(reference)
    if not theirs:
        return text.strip() == reference.strip()
    if ours == theirs:
        return _signs(text) == _signs(reference)
    one, other = _number(ours), _number(theirs)
    return one is not None and one == other and _signs(text) == _signs(reference)


def _signs(text: str) -> frozenset[str]:
    """Signs of money and percent, which are part of a value."""
    is_plain = re.search(r"\d", text) and not re.search(r"\$[^$]*\$", text)
    return frozenset("$€£¥%°") & frozenset(text) if is_plain else frozenset()


_ANSWER = (
    r"(?:(?:so|thus|hence|therefore|then)\b[, ]*)?(?:(?:the|my|our)\s+)?(?:(?:final|correct)\s+)?"
    r"(?:answer|result|solution|value|sum|product|total|difference|quotient)\s*(?:is|=|:|equals)\s*:?\s*"
)
_COMMITTED = re.compile(
    rf"(?:[*_#>\-\s]*)(?:{_ANSWER}|#{{4}}\s*|[\d\s()+\-*/×÷.^]+=\s*)(?P<value>[^\n]{{1,80}})", re.IGNORECASE
)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\}){0,200})\}")
_DENIED = re.compile(r"\b(?:not|never|n't|isn't|wrong|incorrect|false)\b", re.IGNORECASE)


def commits_to(text: str, reference: str) -> bool:
    """Whether the last line or every box states the reference and nothing else."""
    boxes = _BOXED.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    if boxes:
        return all(is_same(box, reference) for box in boxes) and not any(_DENIED.search(line) for line in lines[-2:])
    if not lines:
        return False
    match = _COMMITTED.fullmatch(lines[-1].strip().strip("*_ "))
    is_only = sum(bool(_COMMITTED.match(line.strip())) for line in lines) == 1
    return match is not None and is_only and is_same(match["value"], reference)


# --- hedging ----------------------------------------------------------------------------------------------------------

_ANNOUNCED = re.compile(
    r"\b(?:final\s+)?answers?\s*(?:is|are|:|=|could be|may be|might be)\s*:?\s*([^\n]{1,200}?)(?=[.!?](?:\s|$)|\n|$)",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|instead|no,|sorry|recheck|on second thought|mistake)\b", re.IGNORECASE
)
_VALUE = rf"(?:[a-z]\s*=\s*)?[$€£]?({_NUMBER}(?:/\d+)?)%?"
_TWO_NUMBERS = re.compile(
    rf"(?<![\w.]){_VALUE}(?:\s+[^\W\d]+)?[\s,;(]*{_OR}(?:\s+(?:even|maybe|perhaps|possibly|it'?s|it is|the answer is))?"
    rf"[\s:]*{_VALUE}(?!\w)",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:it|this|that|the answer|answer|i (?:think|guess|say)|either|both|could|may|might|be|is|are|should|one of"
    r"|somewhere|between|from|probably|maybe|perhaps|possibly)\b[\s:=]*|[:=*_\s]+)+",
    re.IGNORECASE,
)
_ENUMERATED = re.compile(r"^[ \t]*(?:\d{1,2}|[a-hA-H])[.)][ \t]+", re.MULTILINE)
_LISTING = re.compile(
    rf"\b(?:(?:one|any|some) of|not sure|either|both|between|from|to|and|but|also|possible|possibly|maybe|perhaps|"
    rf"probably|could|may|might|be|is|are|it|it's|its|that|this|i|think|guess|say|am|the|an?|in|range|answers?|results?|"
    rf"vs)\b|{_OR}",
    re.IGNORECASE,
)
_NO_LIST = re.compile(r"[^\s#,;:|/&±~?.()\[\]{}$_\-]|-[ \t]*#.*-|\w")
_MIXED_NUMBER = re.compile(r"\d\s+and\s+\d+/\d+")
_ASCENDING = re.compile(rf"({_NUMBER})\s*[-–—~]\s*({_NUMBER})")
_ALTERNATIVES = re.compile(rf"[\s,]*{_OR}\s*|\s*[/|]\s*", re.IGNORECASE)


def is_hedging(text: str, reference: str) -> bool:
    """Whether a response ends in several answers where one is asked for ("391 or 400", "390, 391, 392").

    Intermediate values of the working do not count, nor a value that is corrected before the end.
    """
    boxes = _BOXED.findall(text)
    if boxes:
        return len({_plain(box) for box in boxes}) > 1 or _is_several(boxes[-1], reference)
    announced = [match[1] for match in _ANNOUNCED.finditer(text)]
    if announced:
        firsts = {_plain(re.split(r"[.!?](?:\s|$)", one)[0]) for one in announced}
        numbers = {number for one in firsts if (number := _number(one)) is not None}
        if len(numbers) > 1 and not _CORRECTION.search(text):
            return True
        return _is_several(announced[-1], reference)
    lines = [line for line in text.splitlines() if line.strip()]
    is_whole = len(text) <= 200 or _is_a_list(text)
    return bool(lines) and _is_several(text if is_whole else lines[-1], reference)


def _is_several(segment: str, reference: str) -> bool:
    """Whether a final answer names several values."""
    number = _number(_plain(reference))
    if number is not None:
        pair = _TWO_NUMBERS.search(segment)
        if pair is not None and _value(pair[1]) != _value(pair[2]):
            return True
        return _is_a_list(segment)
    bare = _LEAD.sub("", re.split(r"[.!?](?:\s|$)", segment.strip())[0])
    parts = [
        _plain(re.sub(r"^(?:either|the|an?)\s+", "", part, flags=re.IGNORECASE)) for part in _ALTERNATIVES.split(bare)
    ]
    if len(parts) < 2 and (bare.count(",") >= 2 or len(_plain(reference)) == 1):
        parts = [_plain(part) for part in re.split(r",|\band\b|&", bare)]
    parts = [part for part in parts if part]
    is_short = all(len(part.split()) <= 6 for part in parts)
    return len(set(parts)) > 1 and is_short and _plain(reference) in parts


def _is_a_list(segment: str) -> bool:
    """Whether a text is several numbers, and nothing but the words and marks of a list, a range or a doubt."""
    segment = segment.replace("**", "").strip(" .!?_$\n")
    span = _ASCENDING.fullmatch(segment)
    if span is not None:
        return _value(span[1]) < _value(span[2])
    lines = segment.splitlines()
    if len(lines) > 1 and len(_ENUMERATED.findall(segment)) == len(lines):
        segment = _ENUMERATED.sub("", segment)
    if _MIXED_NUMBER.search(segment):
        return False
    numbers = {_value(number) for number in re.findall(rf"(?<![\w.,]){_NUMBER}(?![\w/])", segment)}
    rest = re.sub(rf"(?<![\w.,]){_NUMBER}(?![\w/])", "#", segment)
    is_joined = bool(re.search(r"#[ \t]*#|#,#(?!,)", rest))
    left_over = _LISTING.sub(" ", rest).strip()
    return len(numbers) > 1 and not is_joined and not _NO_LIST.search(left_over)


def _value(number: str) -> Fraction:
    return Fraction(number.replace(",", ""))
