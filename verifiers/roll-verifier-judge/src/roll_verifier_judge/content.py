"""What is certain of a response before any judge is asked: nothing in it, several answers, exactly the reference."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from roll_verifier_judge.answers import commits_to, is_exact, is_hedging, is_same
from roll_verifier_judge.fillers import AROUND, OPENERS, WIDE
from roll_verifier_judge.text import final_text, fold, without_invisible

Finding = Literal["empty_after_normalisation", "nothing_outside_thinking", "content_free", "hedging", "exact"]

_MAX_LOOKED_AT = 20_000
"""Characters of a response's end that are searched for its final answer."""
_MAX_FILLED = 400
"""A longer response is not taken for one without content."""
_NUMBERED_STEP = re.compile(
    r"\b(?:step|paso|étape|schritt|passo|stap|шаг|krok|adım|bước|langkah)\s*\d{1,2}\b|第\s*[\d一二三]\s*步",
    re.IGNORECASE,
)


def answer_text(response: str) -> str:
    """The response as it is judged: without thinking, invisible characters and blank edges."""
    return without_invisible(final_text(response)).strip()


def precheck(response: str, reference: str | None, *, exact: bool, hedging: bool) -> Finding | None:
    """What is certain about a response without asking a judge; None when nothing is.

    Args:
        response: the policy's whole text.
        reference: the reference answer, if there is one.
        exact: accept an answer that is the reference itself.
        hedging: look for several final answers where the reference is one exact value.
    """
    text = answer_text(response)
    if not text and without_invisible(response).strip():
        return "nothing_outside_thinking"
    single = reference if reference is not None and is_exact(reference) else None
    if exact and single is not None and text and is_same(text, single):
        return "exact"
    if not _has_content(text):
        return "empty_after_normalisation"
    if single is not None and hedging and is_hedging(text[-_MAX_LOOKED_AT:], single):
        return "hedging"
    if exact and single is not None and commits_to(text[-_MAX_LOOKED_AT:], single):
        return "exact"
    return "content_free" if _is_filler(text, reference) else None


def _has_content(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


# --- openers ----------------------------------------------------------------------------------------------------------


def _is_filler(text: str, reference: str | None) -> bool:
    """Whether a text consists of openers and the words around them. Digits and number words are content."""
    if len(text) > _MAX_FILLED:
        return False
    text = _NUMBERED_STEP.sub(" step ", unicodedata.normalize("NFKC", text))
    if any(character.isnumeric() and not character.isalpha() for character in text):
        return False
    words = _words(text)
    if not words or _names_a_choice(words):
        return False
    said = {fold(word) for word in words}
    expected = {fold(word) for word in _words(reference or "")}
    if expected and expected <= said:
        return False
    is_opener = False
    for word in said:
        if word in OPENERS:
            is_opener = True
        elif word not in AROUND:
            if not _is_wide_filler(word):
                return False
            is_opener = True
    return is_opener


def _words(text: str) -> list[str]:
    """Runs of letters and the marks that belong to them."""
    return "".join(c if unicodedata.category(c)[0] in "LM" else " " for c in text).split()


def _names_a_choice(words: list[str]) -> bool:
    """Whether a single letter may be the answer ("The answer is A", "B is right")."""
    return any(len(word) == 1 and word.isupper() and word.isascii() and word != "I" for word in words) or (
        len(words) > 1 and len(words[-1]) == 1 and words[-1].isascii()
    )


def _is_wide_filler(word: str) -> bool:
    position = 0
    while position < len(word):
        piece = next((filler for filler in WIDE if word.startswith(filler, position)), None)
        if piece is None:
            return False
        position += len(piece)
    return True
