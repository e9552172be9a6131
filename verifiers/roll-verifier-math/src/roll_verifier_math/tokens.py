"""Normalised text to tokens. Every character becomes part of a token; none is dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from roll_verifier_math.bounds import RefusedError
from roll_verifier_math.vocabulary import FUNCTIONS

Kind = Literal["number", "name", "command", "text", "mark", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `spaced` tells whether blank space stood before it."""

    kind: Kind
    value: str
    spaced: bool = False


END = Token("end", "")
_PLAIN_FUNCTIONS = sorted({*FUNCTIONS, "sqrt"}, key=lambda name: (-len(name), name))
PLAIN_CONSTANTS = {"pi": "pi", "infinity": "infty", "inf": "infty", "theta": "theta", "alpha": "alpha", "beta": "beta"}
_TOKEN = re.compile(
    r"""(?P<number>\d+(?:\.\d+)?|\.\d+)
    | \\text\s*\{(?P<text>[^{}]*)\}
    | \\operatorname\*?\s*\{(?P<operator>[^{}]*)\}
    | \\(?P<edge>begin|end)\s*\{(?P<environment>[a-z]+)\}
    | \\(?P<command>[a-zA-Z]+|[{}%$|\\\#&])
    | (?P<letters>[a-zA-Z]+)
    | (?P<mark>[-+*/^_=<>()\[\]{},;:!|'&%€£])""",
    re.VERBOSE,
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])")


def tokenize(text: str) -> list[Token]:
    """Split `text`; the list ends with an end token.

    Raises:
        RefusedError: a character that has no meaning here.
    """
    tokens: list[Token] = []
    position = depth = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        spaced = position > 0 and text[position - 1].isspace()
        if depth == 0 and (grouped := _THOUSANDS.match(text, position)):
            tokens.append(Token("number", grouped[0].replace(",", ""), spaced))
            position = grouped.end()
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise RefusedError(f"unexpected {text[position]!r}")
        tokens += _tokens(match, spaced)
        value = match[0]
        depth += (value in ("(", "[", "\\{")) - (value in (")", "]", "\\}"))
        position = match.end()
    return [*tokens, END]


def _tokens(match: re.Match[str], spaced: bool) -> list[Token]:  # noqa: PLR0911 - one line a kind
    if match["number"] is not None:
        return [Token("number", match["number"], spaced)]
    if match["text"] is not None:
        return [Token("text", match["text"].strip(), spaced)]
    if match["operator"] is not None:
        return [Token("command", match["operator"].strip(), spaced)]
    if match["edge"] is not None:
        return [Token("command", f"{match['edge']} {match['environment']}", spaced)]
    if match["command"] is not None:
        value = match["command"]
        return [Token("command", value, spaced) if value.isalpha() else Token("mark", "\\" + value, spaced)]
    if match["letters"] is not None:
        return _split_letters(match["letters"], spaced)
    return [Token("mark", match["mark"], spaced)]


def _split_letters(letters: str, spaced: bool) -> list[Token]:
    if letters.lower() in PLAIN_CONSTANTS:
        return [Token("command", PLAIN_CONSTANTS[letters.lower()], spaced)]
    if letters in ("and", "or"):
        return [Token("text", letters, spaced)]
    for name in _PLAIN_FUNCTIONS:
        rest = letters[len(name) :]
        if letters.startswith(name) and len(rest) <= 1:
            return [Token("command", name, spaced), *([Token("name", rest)] if rest else [])]
    if len(letters) > 4:
        raise RefusedError(f"{letters!r} is no product of symbols")
    return [Token("name", letter, spaced and index == 0) for index, letter in enumerate(letters)]
