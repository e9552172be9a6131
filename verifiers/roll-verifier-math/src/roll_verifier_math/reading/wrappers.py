"""What only surrounds an answer: dollars, boxes, bold, quotes, code marks, labels, a full stop."""

from __future__ import annotations

import re

_PAIRS = (
    ("$$", "$$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("$", "$"),
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("``", "''"),
    ('"', '"'),
    ("'", "'"),
)
_GROUP = re.compile(
    r"\\(?:boxed|fbox|framebox|text|textbf|textit|textrm|textsf|texttt|textnormal|mbox|hbox|emph|underline|"
    r"ensuremath|mathrm|mathbf|mathit|mathsf|mathtt|boldsymbol|bm|displaystyle|tiny|small|large|Large|LARGE|huge|Huge|normalsize)"
    r"\s*\{"
)
_COLOURED = re.compile(r"\\(?:colorbox|fcolorbox\{\w*\}|textcolor)\s*\{\w*\}\s*\{")
_ENVIRONMENT = re.compile(
    r"\\begin\s*\{((?:align|equation|gather|aligned|gathered|displaymath|math|center)\*?)\}(.*)\\end\s*\{\1\}",
    re.DOTALL,
)
_TAG = re.compile(r"<(b|i|em|strong|p|u|span|code)>(.*)</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:\w+\n)?(.*?)```", re.DOTALL)
_LABEL = re.compile(
    r"\s*(?:(?:\\text(?:bf)?\s*\{\s*)?(?:the\s+)?(?:(?:final|correct)\s+)?answer(?:\s+is)?\s*[:=]\s*\}?|[:=](?![:=])|:=)\s*",
    re.IGNORECASE,
)


def unwrapped(text: str) -> str:
    """The text without what only surrounds it."""
    while True:
        before = text
        text = text.strip()
        if not text:
            return text
        if not (text[0].isalnum() and text[-1].isalnum()):
            text = _peeled(text)
        if text == before:
            return text


def _peeled(text: str) -> str:
    first, last = text[0], text[-1]
    if first in "$*_\"'`\\":
        text = _without_pair(text)
    if first == "\\":
        text = _without_group(text)
    elif first == "{":
        text = _inside(text, 1, text) if text.endswith("}") else text
    elif first == "<" and (tagged := _TAG.fullmatch(text)):
        text = tagged[2]
    elif first == "`":
        text = _without_code(text)
    if first in ":=\\" and (label := _LABEL.match(text)):
        text = text[label.end() :]
    if last in ".,;":
        text = text if text.endswith("...") else text[:-1]
    elif last == "\\":
        text = text.rstrip("\\")
    return text


def _without_pair(text: str) -> str:
    for opening, closing in _PAIRS:
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner and closing not in inner and not inner.endswith("\\"):
                return inner
    return text


def _without_group(text: str) -> str:
    match = _GROUP.match(text) or _COLOURED.match(text)
    if match:
        return _inside(text, match.end(), text)
    environment = _ENVIRONMENT.fullmatch(text)
    if environment and "\\begin" not in environment[2]:
        return environment[2].replace("&", " ")
    return text


def _without_code(text: str) -> str:
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text.strip("`")


def _inside(text: str, begin: int, otherwise: str) -> str:
    """What a brace opened before `begin` holds, when it closes at the very end of the text."""
    depth = 1
    position = begin
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return text[begin:position] if position == len(text) - 1 else otherwise
        position += 1
    return otherwise
