"""Which language a text is in: by its script where that decides, else by py3langid's model (139 languages, bundled).

Always the same answer for the same text, also for one that is too short to tell.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from roll_verifier_instructions.base import Finding
from roll_verifier_instructions.scripts import LANGUAGES, RIVALS, SCRIPTS, SIGNS
from roll_verifier_instructions.text import without_code, words

_OWN_SHARE = 0.5
"""Share of the letters that must be of the language's script: names, terms and keywords may be foreign."""
_SIGN_WEIGHT = 0.25
_MODEL_CHARS = 20_000
_MAX_PARTS = 400
_FOREIGN_SHARE = 0.15
_FOREIGN_GAP = 2.5
"""How much likelier another language must be for a part in the same script to count as foreign."""

_NOT_LANGUAGE = re.compile(
    r"(?:https?://|www\.)\S+|(?<![\w.+-])[\w.+-]{1,64}@[\w.-]{3,255}|\[[^\[\]\n]*\]|<<[^\n]{1,300}?>>|<[^<>\n]{1,80}>"
)
_PART = re.compile(r"[^\n.!?。！？।॥۔؟:;]+")


class _Ranker(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    words: list[str]
    letters: int


def judge_language(text: str, code: str) -> Finding:
    """Whether a text is in the language `code` of `scripts.LANGUAGES`, and in no other.

    Code, links, placeholders (`[name]`) and `<<titles>>` are left out first (unless nothing else is there). Then:

    1. At least half of the letters are of the language's script; Japanese needs kana, Korean needs Hangul.
    2. Where the script is shared, no other language is clearly likelier: the model's scores differ by less than a
       bound that falls with the number of words (up to two words almost everything passes that could be the
       language). Small words and letters of a language (`scripts.SIGNS`) count in addition.
    3. No sentence or line is in another language: one of three or more words in a foreign script, or of four or more
       that is much likelier in another language of the same script and no name (all words with capitals), where such
       parts are 15 % of the letters or one of them has six words.

    A text without letters is in no language.
    """
    stripped = _NOT_LANGUAGE.sub(" ", without_code(text))
    plain = stripped if any(map(str.isalpha, stripped)) else text
    name = LANGUAGES[code].name
    own, total = _own_letters(plain, code), sum(map(str.isalpha, plain))
    if total == 0:
        return Finding(False, "no letters")
    if own < _OWN_SHARE * total:
        return Finding(False, f"{own} of {total} letters are of the script of {name}")
    if _needs_model(code):
        gap, likeliest = _gap(plain[:_MODEL_CHARS], code)
        if gap > _allowed_gap(len(words(plain[:_MODEL_CHARS]))):
            return Finding(False, f"reads like '{likeliest}', not {name}")
    foreign = _foreign_part(plain, code)
    if foreign is not None:
        return Finding(False, f"not {name}: {foreign[:60]!r}")
    return Finding(True, name)


def _needs_model(code: str) -> bool:
    """Whether the script leaves a choice between languages."""
    mine = LANGUAGES[code].scripts[0]
    return sum(language.scripts[0] == mine for language in LANGUAGES.values()) > 1


def _own_letters(text: str, code: str) -> int:
    scripts = LANGUAGES[code].scripts
    if not _count(text, scripts[:1]):
        return 0
    return _count(text, scripts)


def _count(text: str, scripts: tuple[str, ...]) -> int:
    return sum(map(str.isalpha, "".join(_letters(scripts).findall(text))))


@lru_cache(maxsize=64)
def _letters(scripts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(SCRIPTS[script] for script in scripts)}]+")


@lru_cache(maxsize=64)
def _foreign_letters(scripts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"(?![{''.join(SCRIPTS[script] for script in scripts)}])[^\\W\\d_]")


def _allowed_gap(word_count: int) -> float:
    """Bounds at which 95 % of two-word texts, 97 % of up to five and 99 % of longer ones are taken for their own."""
    if word_count <= 2:
        return 2.0
    return 0.75 if word_count <= 5 else 0.5


def _gap(text: str, code: str) -> tuple[float, str]:
    """How much likelier the likeliest language is than `code`, per square root of bytes; and which it is.

    0 where `code` is the likeliest itself.
    """
    text = _foreign_letters(LANGUAGES[code].scripts).sub("", text)
    if text.isupper():
        text = text.lower()
    size = math.sqrt(len(text.encode("utf-8", "surrogatepass")) or 1)
    signs = _signs(text) if code in SIGNS else {}
    scores = {
        label: score / size + _SIGN_WEIGHT * signs.get(label, 0.0)
        for label, score in _identifier().rank(text)
        if label in RIVALS or label == code
    }
    likeliest = max(scores, key=lambda label: (scores[label], label == code))
    return scores[likeliest] - scores[code], likeliest


def _signs(text: str) -> dict[str, float]:
    """For each of the close languages: ten times the share of words that are its signs, four at most."""
    found = [word.lower() for word in words(text[:2000])]
    return {
        code: min(4.0, 10.0 * sum(_is_sign(word, letters, known) for word in found) / max(1, len(found)))
        for code, (letters, known) in SIGNS.items()
    }


def _is_sign(word: str, letters: str, known: frozenset[str]) -> bool:
    return word in known or any(letter in word for letter in letters)


@lru_cache(maxsize=1)
def _identifier() -> _Ranker:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]  # ships no types

    identifier: _Ranker = LanguageIdentifier.from_model_file(MODEL_FILE)
    return identifier


def _foreign_part(text: str, code: str) -> str | None:
    """A sentence or line in another language that breaks rule 3, if any. Of very many parts every nth is looked at."""
    parts = [_Part(part, words(part), sum(map(str.isalpha, part))) for part in _sampled(text)]
    allowed = _FOREIGN_SHARE * sum(part.letters for part in parts)
    foreign = 0
    for part in parts:
        if len(part.words) < 3 or _is_name(part.words):
            continue
        if _own_letters(part.text, code) < part.letters / 2:
            if sum(_is_foreign(word, code) for word in part.words) > 2:
                return part.text.strip()
            continue
        if len(part.words) > 3 and _needs_model(code) and _gap(part.text, code)[0] > _FOREIGN_GAP:
            foreign += part.letters
            if len(part.words) > 5 or foreign > allowed:
                return part.text.strip()
    return None


def _sampled(text: str) -> list[str]:
    parts = [match[0] for match in _PART.finditer(text)]
    step = max(1, math.ceil(len(parts) / _MAX_PARTS))
    return [part[:500] for part in parts[::step]]


def _is_foreign(word: str, code: str) -> bool:
    """Whether a word has letters, none of them of the language's scripts."""
    return any(map(str.isalpha, word)) and not _count(word, LANGUAGES[code].scripts)


def _is_name(found: list[str]) -> bool:
    """Whether most words begin with a capital, as those of titles and names do (not in a text of capitals)."""
    cased = [word for word in found if word[0].isalpha() and word.lower() != word.upper()]
    capital = sum(word[0].isupper() for word in cased)
    return 0 < 0.7 * len(cased) <= capital and not all(map(str.isupper, cased))
