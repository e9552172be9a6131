"""Sentences, without a model: terminal punctuation, abbreviations, blocks of the layout.

Made for English; punctuation of other scripts is understood, abbreviations of other languages mostly not. Thai and
other languages without terminal punctuation have one sentence per block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from roll_verifier_instructions.text import has_words, words

FRAGMENT_WORDS = 4
"""Words that text without terminal punctuation must have to count as a sentence."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER_END = _set(
    "mr mrs ms mx dr prof rev gen col capt lt sgt cmdr sen rep gov hon st mt messrs vs v approx e.g i.e cf viz "
    "al ca eg ie z.b d.h bzw p.s p.p.s"
)
"""Abbreviations that are followed by more of their sentence."""
_BEFORE_NUMBER = _set("no nos nr fig figs vol pp p ch sec art eq jan feb mar apr jun jul aug sep sept oct nov dec")
"""Abbreviations only before a number: "No. 5"."""
_MAY_END = _set("etc inc ltd co corp jr sr bros dept est ave blvd usw a.m p.m b.c a.d ph.d m.d b.a m.a b.sc m.sc")
"""Abbreviations that may close a sentence: they do where a capital letter follows; names and degrees need a starter."""
_TIME_LIKE = _set("etc usw a.m p.m b.c a.d")
_STARTERS = _set(
    "he she it they we i you the a an this that these those but and or so if when while after before then "
    "there here however in on at for with my his her our their your its what why how who where yes no not as "
    "to also both one some many most all each every now today yesterday tomorrow please let"
)
"""Words that begin a sentence rather than go on with a name: "vitamin C. It helps" against "J. Smith"."""
_SAY = "said|says|asked|asks|replied|cried|shouted|whispered|exclaimed|yelled|answered|called|added|muttered|screamed"

_CLOSERS = "\"'”’»)\\]}*_>"
_END = re.compile(
    rf"(?<![.!?…‽])[.!?…‽]++[{_CLOSERS}]*+(?:\[\d{{1,3}}\])*+(?=\s|$)"  # the ordinary end
    rf"|(?<=[a-zà-öø-ÿ])[.!?]++(?=[A-Z][a-z])"  # no blank behind: "One.Two"
    r"|[。！？｡।॥۔؟։።]+[」』”’\"')]*"  # scripts that need no blank
)
_MARKER = re.compile(r"[\s>]*(?:[-*+•]\s+|\(?(?:\d{1,3}|[A-Za-z])[.)]\s+)?")
_BREAK = re.compile(r"\s*(?:[-*_=~]\s*){3,}|[\s|:=-]*|\s*<<.*>>\s*|\s*#{1,6}\s.*|\s*(?:```|~~~).*")
_BOLD_LINE = re.compile(r"\s*(\*\*|__)[^*\n]*[^.!?*\s]\1:?\s*")
_SPEAKER = r"[A-Z]\w*(?: [A-Z]\w*)?|he|she|they|we"
_SAYING = re.compile(rf"\s*(?:(?:{_SPEAKER}) )?(?:{_SAY})\b")
_CARRIED = 120
"""Characters of an unended block that are joined to the next one; enough to tell that it is no fragment."""
_SIGN_OFF = re.compile(
    r"\s*(?:(?:best|kind|warm|warmest) (?:regards|wishes)|(?:yours )?(?:sincerely|truly|faithfully)(?: yours)?"
    r"|(?:with )?(?:love|thanks|gratitude)|best|regards|cheers|respectfully),\s*",
    re.IGNORECASE,
)
_TOKEN_BEFORE = re.compile(r"[^\s\"'“”‘’(\[*]*$")


def count_sentences(text: str) -> int:
    """How many sentences a text has; at least one if it has a word.

    A sentence ends with `. ! ? …` (also in a row, with closing quotes or brackets) or the marks of other scripts. It
    does not end with abbreviations, initials, decimals, list numbers, an ellipsis or quoted exclamation that goes on
    in lower case. A blank line, list item, heading or divider ends a block; what is left at a block's end without
    terminal punctuation counts when it has four words or more, is joined to the next block when it ends with a comma,
    colon, semicolon or dash, and is a heading otherwise. Headings (`#`, a bold line, `<<…>>`) and a letter's
    "Best regards," are no sentences.
    """
    count = 0
    pending = ""
    for block in _blocks(text):
        ended, rest = _count_ends(f"{pending} {block}".strip())
        count += ended
        pending = ""
        if rest.rstrip('*_ "”').endswith((",", ":", ";", "—", "–", "-")):
            pending = rest[-_CARRIED:]
        elif _is_fragment(rest):
            count += 1
    if pending and _is_fragment(pending):
        count += 1
    return count or int(has_words(text))


def _is_fragment(text: str) -> bool:
    return len(words(text[:1000])) >= FRAGMENT_WORDS


def _blocks(text: str) -> Iterator[str]:
    """Stretches of text that belong together; headings, dividers and markers of lists are left out."""
    lines: list[str] = []
    for line in text.split("\n"):
        is_break = any(pattern.fullmatch(line) for pattern in (_BREAK, _BOLD_LINE, _SIGN_OFF))
        marker = _MARKER.match(line)
        content = line[marker.end() :] if marker else line
        if (is_break or content != line.lstrip(" \t")) and lines:
            yield " ".join(lines)
            lines = []
        if not is_break:
            lines.append(content.strip())
    if lines:
        yield " ".join(lines)


def _count_ends(block: str) -> tuple[int, str]:
    """Sentences that end inside a block, and the text behind the last end."""
    count = 0
    start = 0
    is_lower = not any(map(str.isupper, block))
    for match in _END.finditer(block):
        if not has_words(block[start : match.start()]):
            start = match.end()
        elif _is_end(block, match, is_lower=is_lower):
            count += 1
            start = match.end()
    return count, block[start:].strip()


def _is_end(block: str, match: re.Match[str], *, is_lower: bool) -> bool:
    after = block[match.end() : match.end() + 60]
    following = after.lstrip(" \t\"'“‘(*_[")
    if not following or match[0][0] in "。！？｡।॥۔؟։።":
        return True
    goes_on = following[0].islower() and not is_lower
    if not re.match(r"\.(?![.!?…‽])", match[0]):
        is_quoted = match[0][-1] not in ".!?…‽"
        return not (goes_on or (is_quoted and _SAYING.match(after)))
    token = _TOKEN_BEFORE.search(block[max(0, match.start() - 40) : match.start()])
    return _dot_ends(token[0] if token else "", following, goes_on=goes_on)


def _dot_ends(token: str, following: str, *, goes_on: bool) -> bool:
    """Whether a lone dot behind `token` ends a sentence."""
    low = token.lower().rstrip(".")
    next_word = re.match(r"[\w']+", following)
    is_starter = next_word is not None and next_word[0].lower() in _STARTERS
    if low in _NEVER_END:
        return False
    if low in _BEFORE_NUMBER and following[0].isdigit():
        return False
    if low in _TIME_LIKE:
        return not goes_on and following[0].isupper()
    is_initials = re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", low) is not None
    if low in _MAY_END or (is_initials and low != "i"):
        return is_starter and not goes_on
    return True
