"""What a word is, and how texts are cleaned and compared. No checker has rules of its own for this."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from roll_core.types import without_thinking

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Characters that show nothing; the joiners U+200C and U+200D are kept, since Persian and Indic spelling needs them."""
_JOINERS = re.compile("[\u200c\u200d]")
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "‛": "'", "ʼ": "'", "´": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "＂": '"'}
)
_NO_WORD = "\x00"
"""Stands for the underscore, which `\\w` takes for a letter."""
_SINGLE = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
"""Han and kana: written without blanks, each character counts as one word."""
_UNSPACED = _SINGLE + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7af"
"""Scripts in which a word's end cannot be told from its neighbours: those, Thai, Lao, Burmese, Khmer; and Hangul,
whose particles are glued to the word."""
_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u036f\u1e00-\u1eff0-9"
_MAX_HYPHENS = 3

_single = re.compile(f"[{_SINGLE}]")
_unspaced = re.compile(f"[{_UNSPACED}]")
_latin = re.compile(f"[{_LATIN}]")
_hyphen = re.compile("[-‐‑]")


@lru_cache(maxsize=1)
def _letters() -> str:
    r"""Inside of a character class: letters, digits, and the marks that belong to them (vowel signs, accents).

    `\w` alone leaves out combining marks, which cuts every Hindi or Tamil word to pieces.
    """
    marks = [chr(code) for code in range(0x300, 0x1E950) if unicodedata.category(chr(code)).startswith("M")]
    ranges: list[list[str]] = []
    for mark in marks:
        if ranges and ord(mark) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = mark
        else:
            ranges.append([mark, mark])
    return "\\w\u200c\u200d" + "".join(f"{first}-{last}" for first, last in ranges)


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    letter = f"[{_letters()}]"
    address = r"(?:https?://|www\.)\S+"
    number = r"\d+(?:[.,:/٫٬]\d+)+"
    initials = rf"(?<!{letter})(?:(?:[A-Z][a-z]|[^\W\d])\.){{2,}}(?:[^\W\d](?!{letter}))?"
    plain = rf"{letter}+(?:['’ʼ{_NO_WORD}]{letter}+)*"
    return re.compile(rf"{address}|{number}|{initials}|{plain}(?:[-‐‑]{plain})*")


def clean(response: str) -> str:
    """The response without thinking (up to `</think>`; unended thinking leaves nothing) and invisible characters.

    Line ends become newlines, and letters their composed form (NFC).
    """
    text = without_thinking(response)
    text = _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text)


def has_words(text: str) -> bool:
    """Whether the text holds a letter or digit."""
    return re.search(r"[^\W_]", text) is not None


def words(text: str) -> list[str]:
    """The words of a text.

    A word is a run of letters, digits and their marks. Apostrophes ("don't"), underscores ("a_name") and up to three
    hyphens ("mother-in-law") join; a longer chain is as many words as it has parts. Numbers ("3.14", "1,000", "10:30"),
    initials ("U.S.A.") and web addresses are one word each; Han characters and kana are a word each. Dashes, slashes,
    dots and markup separate; what holds neither letter nor digit is no word.
    """
    text = _single.sub(r" \g<0> ", text.replace("_", _NO_WORD))
    found: list[str] = []
    for match in _word().finditer(text):
        word = match[0]
        parts = _hyphen.split(word) if "-" in word or "‐" in word or "‑" in word else [word]
        found.extend([word] if len(parts) <= _MAX_HYPHENS + 1 or "://" in word else parts)
    return found


def fold(text: str) -> str:
    """How texts are compared: letter case, quote shapes, compatibility forms and invisible joiners do not count."""
    text = _JOINERS.sub("", unicodedata.normalize("NFKC", text).translate(_QUOTES))
    return text.casefold().replace("_", _NO_WORD)


def straighten(text: str) -> str:
    """Typographic quotes and apostrophes as plain ones, character for character."""
    return text.translate(_QUOTES)


@lru_cache(maxsize=256)
def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """Finds a phrase as whole words in a folded text, over any blanks and emphasis.

    A border is wanted only where the phrase ends in a letter or digit, and only towards its own kind of letters: in
    Korean or Chinese text a Latin word may touch its neighbours, and phrases in those scripts have no borders.
    """
    folded = fold(phrase).strip()
    body = rf"[\s*~`{_NO_WORD}]+".join(map(re.escape, folded.split()))
    first, last = _neighbours(folded[:1]), _neighbours(folded[-1:])
    return re.compile((f"(?<!{first})" if first else "") + body + (f"(?!{last})" if last else ""))


def count_phrase(phrase: str, folded: str) -> int:
    """How often a phrase stands in a text that has been folded, as whole words."""
    return sum(1 for _ in phrase_pattern(phrase).finditer(folded))


def _neighbours(edge: str) -> str:
    """The characters that would make a longer word of one that begins or ends with `edge`; "" where none would."""
    if not re.match(f"[{_letters()}]", edge) or _unspaced.match(edge):
        return ""
    return f"[{_LATIN}]" if _latin.match(edge) else f"[{_letters()}]"


def base_letters(text: str) -> str:
    """Lower-case text with every letter reduced to its base ("é" to "e", "ﬁ" to "fi"); other characters stay."""
    table = {ord(character): _base(character) for character in set(text) if not character.isascii()}
    return text.translate(table).lower()


def _base(character: str) -> str:
    if not unicodedata.category(character).startswith("L"):
        return "" if unicodedata.combining(character) else character
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part for part in parts if not unicodedata.combining(part)) or character


def without_code(text: str) -> str:
    """The text without fenced code blocks and code spans; a text that is one fenced block is its content."""
    lines = text.strip().split("\n")
    if len(lines) > 2 and _fence(lines[0]) and lines[-1].strip() == _fence(lines[0]):
        inner = lines[1:-1]
        if not any(map(_fence, inner)):
            return "\n".join(inner)
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line.strip() == fence else fence
        else:
            fence = _fence(line)
            if not fence:
                kept.append(line)
    return re.sub(r"(?<!`)(`{1,2})[^`\n]+\1(?!`)", " ", "\n".join(kept))


def _fence(line: str) -> str:
    mark = line.strip()[:3]
    return mark if mark in ("```", "~~~") else ""
