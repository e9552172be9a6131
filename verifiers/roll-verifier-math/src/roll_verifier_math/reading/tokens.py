"""Normalised text to tokens. Every character becomes part of a token; none is dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.reading.vocabulary import FUNCTIONS, PLAIN_CONSTANTS

Kind = Literal["number", "name", "command", "text", "mark", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `spaced` tells whether blank space stood before it."""

    kind: Kind
    value: str
    spaced: bool = False


END = Token("end", "")
_PLAIN_FUNCTIONS = sorted({*FUNCTIONS, "sqrt"}, key=lambda name: (-len(name), name))
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    | (?P<number>\d+(?:\.\d+)?|\.\d+)
    | \\text\s*\{(?P<text>[^{}]*)\}
    | \\operatorname\*?\s*\{(?P<operator>[^{}]*)\}
    | \\(?P<edge>begin|end)\s*\{(?P<environment>[a-zA-Z]+)\}
    | \\(?P<command>[a-zA-Z]+|[{}%$|\\\#&])
    | (?P<letters>[a-zA-Z]+)
    | (?P<mark>[-+*/^_=<>()\[\]{},;:!|'&%€£])""",
    re.VERBOSE,
)
_NOTATION = re.compile(r"\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|[^\s]")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LONGEST_PRODUCT = 4


def tokenize(text: str) -> list[Token]:
    """Split `text`; the list ends with an end token.

    Raises:
        RefusedError: a character that has no meaning here.
    """
    tokens: list[Token] = []
    position = 0
    spaced = False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise RefusedError(f"unexpected {text[position]!r}")
        position = match.end()
        kind = match.lastgroup
        if kind == "blank":
            spaced = True
            continue
        if kind == "number":
            tokens.append(Token("number", match[0], spaced))
        elif kind == "mark":
            tokens.append(Token("mark", match[0], spaced))
        elif kind == "command":
            value = match["command"]
            tokens.append(Token("command", value, spaced) if value.isalpha() else Token("mark", match[0], spaced))
        else:
            tokens += _rarer(match, spaced)
        spaced = False
    return [*tokens, END]


def _rarer(match: re.Match[str], spaced: bool) -> list[Token]:
    if match["text"] is not None:
        return [Token("text", match["text"].strip(), spaced)]
    if match["operator"] is not None:
        return [Token("command", match["operator"].strip(), spaced)]
    if match["edge"] is not None:
        return [Token("command", f"{match['edge']} {match['environment']}", spaced)]
    return _split_letters(match["letters"], spaced)


def _split_letters(letters: str, spaced: bool) -> list[Token]:
    if len(letters) == 1:
        return [Token("name", letters, spaced)]
    if (constant := PLAIN_CONSTANTS.get(letters) or PLAIN_CONSTANTS.get(letters.lower())) and len(letters) > 1:
        return [Token("command", constant, spaced)]
    if letters in ("and", "or"):
        return [Token("text", letters, spaced)]
    for name in _PLAIN_FUNCTIONS:
        rest = letters[len(name) :]
        if letters.startswith(name) and len(rest) <= 1:
            return [Token("command", name, spaced), *([Token("name", rest)] if rest else [])]
    if len(letters) > _LONGEST_PRODUCT and not letters.isupper():
        raise RefusedError(f"{letters!r} is no product of symbols")
    return [Token("name", letter, spaced and index == 0) for index, letter in enumerate(letters)]


def notation(text: str) -> tuple[str, ...]:
    """The tokens of any text, without blanks and without braces around a single token."""
    tokens = _NOTATION.findall(_TEXT.sub(r" \1 ", text))
    kept: list[str] = []
    position = 0
    while position < len(tokens):
        if tokens[position] == "{" and tokens[position + 2 : position + 3] == ["}"] and len(tokens[position + 1]) == 1:
            kept.append(tokens[position + 1])
            position += 3
        else:
            kept.append(tokens[position])
            position += 1
    return tuple(kept)
