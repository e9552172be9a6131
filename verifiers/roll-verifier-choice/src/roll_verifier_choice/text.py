"""Text before it is read: thinking, look-alike characters, markup."""

from __future__ import annotations

import re
import unicodedata

MAX_RESPONSE_CHARS = 200_000
"""Only this much of the end of a response is searched for an answer."""

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_WIDE = re.compile("[\u00a0\u3000\uff01-\uff5e\u2460-\u24ff\U0001d400-\U0001d7ff\U0001f110-\U0001f149]+")
"""Full-width, circled, bracketed and mathematical letters and digits; superscripts keep their meaning and stay."""
_BODY = r"\s*\{([^{}]*)\}"
_FORMAT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|bm|emph|underline|mbox)" + _BODY)
_BOXED = re.compile(r"\\(?:boxed|fbox)" + _BODY)
_SPACING = re.compile(r"\\[ ,;:!]|\\q?quad\b|\\displaystyle\b|\\(?:left|right)(?![a-zA-Z])|~")
_DELIMITERS = re.compile(r"\*\*|__|`|\$|\\[()\[\]]")
_BLANKS = re.compile(r"\s+")
_EDGES = " \t\r\n*_#>\"'“”‘’«»「」"
_TRAILING = _EDGES + ".,;:。，；：\\"


def clean(text: str) -> str:
    """The end of `text` without invisible characters and markup, with full-width and circled letters as ASCII."""
    tail = _INVISIBLE.sub("", text[-MAX_RESPONSE_CHARS:])
    plain = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), unicodedata.normalize("NFC", tail))
    return _without_markup(plain)


def _without_markup(text: str) -> str:
    r"""`text` without Markdown emphasis and LaTeX wrappers ("\text{B}", "$B$", "**B**"); boxes stay."""
    for _ in range(4):
        plain = _FORMAT.sub(r"\1", text)
        if plain == text:
            break
        text = plain
    return _DELIMITERS.sub("", _SPACING.sub(" ", text))


def without_boxes(text: str) -> str:
    """`text` without the boxes around parts of it."""
    for _ in range(4):
        plain = _BOXED.sub(r"\1", text)
        if plain == text:
            break
        text = plain
    return text.strip()


def exact_form(text: str) -> str:
    """What must agree first when texts of options are compared: everything but blanks and markup."""
    return _BLANKS.sub(" ", without_boxes(clean(text))).strip()


def loose_form(text: str) -> str:
    """What must agree next: letter case, quotes around and punctuation behind are left out too."""
    plain = unicodedata.normalize("NFKC", exact_form(text))
    return _BLANKS.sub(" ", plain).strip().lstrip(_EDGES).rstrip(_TRAILING).casefold()
