"""Cleaning of text that a language model wrote: thinking, template tokens, invisible characters."""

from __future__ import annotations

import re
import unicodedata

from roll_core.types import without_thinking

_TOKEN = re.compile(r"<\|[^|<>\n]{0,64}\|>|</?s>|<(?:bos|eos|pad|end_of_turn|start_of_turn)>|\[/?INST\]")
_END_OF_TURN = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end▁of▁sentence|return)\|>|</s>|<end_of_turn>|<eos>"
)
_FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\s*(?:<\|message\|>)?", re.IGNORECASE)
_OTHER_CHANNEL = re.compile(r"<\|channel\|>", re.IGNORECASE)
_LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029\v\f]")
_ALL_QUOTED = re.compile("[\"“'‘`]([^\"“”'‘’`\n]*)[\"”'’`]")
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_KEYCAP = 0x20E3
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_MINUS_SIGNS = str.maketrans({"\u2212": "-", "\u2012": "-", "\u2010": "-", "\u2011": "-"})


def final_text(text: str) -> str:
    """What a model wrote for its reader: its final channel, where it has channels, and that without thinking."""
    finals = list(_FINAL_CHANNEL.finditer(text))
    if finals:
        text = text[finals[-1].end() :]
    elif _OTHER_CHANNEL.search(text):
        return ""
    return without_thinking(text)


def without_invisible(text: str) -> str:
    """Drop format characters (zero-width, bidi, BOM) and lone surrogates; controls except tab become blanks.

    Line ends of every sort become a newline.
    """
    return "".join(map(_visible, _LINE_ENDS.sub("\n", text)))


def _visible(character: str) -> str:
    if character in "\n\t" or " " <= character <= "~":
        return character
    code = ord(character)
    category = unicodedata.category(character)
    if category == "Cc":
        return " "
    return "" if code == _KEYCAP or code in _VARIATION_SELECTORS or category in ("Cf", "Cs") else character


def clean_reply(raw: str) -> str:
    """A judge's reply as its reader sees it: compatibility forms folded, thinking and template tokens gone.

    What follows an end-of-turn token was not said by the judge in its turn and is left out.
    """
    text = without_invisible(unicodedata.normalize("NFKC", raw)).translate(_MINUS_SIGNS)
    text = final_text(text)
    for end in _END_OF_TURN.finditer(text):
        if text[: end.start()].strip():
            text = text[: end.start()]
            break
    text = _LINE_BREAK.sub("\n", _TOKEN.sub("", text)).strip()
    quoted = _ALL_QUOTED.fullmatch(text)
    return text if quoted is None else quoted[1].strip()


def fold(text: str) -> str:
    """A form in which texts that read the same are equal: NFKC, one case, single blanks."""
    return " ".join(without_invisible(unicodedata.normalize("NFKC", text)).casefold().split())
