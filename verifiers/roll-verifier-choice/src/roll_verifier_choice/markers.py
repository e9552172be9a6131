"""Words that announce an answer ("the answer is"), and sentences that claim one ("B is correct").

Each is looked for by a plain word first, so that most of a text is passed over at the speed of `str.find`, and then by
a regular expression at that word.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache

from roll_verifier_choice.options import Options
from roll_verifier_choice.place import Place

MAX_PLACES = 64
"""Only so many announcements and claims, from the end, are looked at."""
SENTENCE_CHARS = 400
"""How far behind its announcement an answer is read."""
_BEFORE = 80

_NOUNS = ("answer", "ans", "choice", "option", "selection", "solution")
_OPINIONS = ("think", "believe", "guess", "say")
_EUROPEAN_NOUNS = ("respuesta", "réponse", "reponse", "antwort", "risposta", "resposta", "opción", "opcion", "ответ")
_EASTERN_NOUNS = ("答案", "正解", "答え", "解答", "选项", "選項", "정답", "답")
_NOUN = r"(?:answers?|ans|choices?|options?|selections?|solution)"
_ONE = r"(?:correct|right|true|best|matching)\s+(?:one|statement|response|match|term|word|sentence|letter|alternative)"
_IS = (
    r"(?:(?:is|are|was|were|would\s+be|should\s+be|must\s+be|can\s+only\s+be|will\s+be|has\s+to\s+be|seems\s+to\s+be|remains)"
    r"(?=\b|n['’]t)|['’]s\b|->|→|⇒|=|[:：])(?:[\"'*_\s]*[:：])?"
)
_BETWEEN = (
    r"[\"'*_)\s]{0,6}(?:\s?\b(?:here|now|then|therefore|thus|clearly|indeed)\s+)?"
    r"(?:\s(?:to|for|of|in)\s[^.\n:]{1,60}?\s|,\s*\w+,\s*)?"
)
_EUROPEAN = (
    r"\b(?:respuesta|r[eé]ponse|antwort|risposta|resposta|opci[oó]n|ответ)\b[^.:\n]{0,40}?"
    r"(?:\b(?:es|est|ist|lautet|sería|war)\b|\b[eèé]\b|[:：=—])"
)
_EASTERN = r"(?:答案|正解|答え|解答|选项|選項|정답|답)(?:应该|應該|应|應)?(?:是|为|為|选|選|は|은|는)?\s*[:：]?"
_MATCHING = r"\b(?P<verb>corresponds?\s+to|match(?:es)?(?:\s+with)?|i\.e\.,?)\s+(?=(?:option|choice|answer|letter)\b)"
_ANNOUNCING: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (words, re.compile(pattern, re.IGNORECASE))
    for words, pattern in (
        (_NOUNS, rf"\b{_NOUN}\b(?:\s+{_NOUN}\b)?{_BETWEEN}{_IS}"),
        (("correct", "right", "true", "best", "matching"), rf"\b{_ONE}\b{_BETWEEN}{_IS}"),
        (("answer",), r"(?P<heading>\banswer)\W{0,6}(?:\n|$)"),
        (("choos", "chose", "pick", "select"), r"\b(?P<verb>choose|chose|choosing|pick|picking|select|selecting)\b"),
        (("correspond", "match", "i.e."), _MATCHING),
        (("ans.",), r"\bans\.\s*"),
        (("go", "opt"), r"\b(?P<verb>go(?:ing)?\s+with|opt(?:ing)?\s+for)\b"),
        (_OPINIONS, r"\b(?P<opinion>think|believe|guess|say)(?:\s+(?:that|it\s+is|it['’]s))*\b"),
        (_EUROPEAN_NOUNS, _EUROPEAN),
        (_EASTERN_NOUNS, _EASTERN),
        (("选", "選"), r"(?:选择|選擇|选|選)(?:项|項)?\s*[:：]?"),
    )
)
_DOUBT = re.compile(
    r"\b(?:if|suppose|supposing|assume|assuming|unless|whether|were|could|might|may|would\s+(?:it|have)|why|tempt\w*|"
    r"(?:some|others|many|people|students?)\s+(?:\w+\s+)?(?:say|argue|claim|think|believe|would))\b[^.!?;,\n]{0,40}$",
    re.IGNORECASE,
)
_NOT_BEFORE = re.compile(r"(?:\b(?:not|never|cannot|rule\s+out)|n['’]t)\W*(?:\w+\W+){0,2}$", re.IGNORECASE)
_WRONG_BEFORE = re.compile(r"\b(?:wrong|incorrect|false|rejected|eliminated)\s+$", re.IGNORECASE)
_HEADING_BEFORE = re.compile(r"(?:^|\n)\W{0,6}(?:(?:final|correct)\s+)?$", re.IGNORECASE)
_I_BEFORE = re.compile(r"\bI\s+(?:would\s+)?$", re.IGNORECASE)

_CONCLUDING = ("therefore", "thus", "hence", "so", "∴", "⇒", "=>", "but", "no", "wait", "actually")
_THEREFORE = (
    r"(?:(?:\b(?:therefore|thus|hence|so)\b|[∴⇒]|=>)[\s,:]*(?:it\s+(?:is|must\s+be)\s+|it['’]s\s+)?|"
    r"\b(?:but|no|wait|actually)[\s,]+(?:it\s+is|it['’]s)\s+(?:actually\s+|really\s+)?)(?P<open>[(\[]?)"
    r"(?P<label>{label})[)\]]*[ \t]*(?=[.!]|$|\n)"
)
_JUDGING = ("correct", "right", "best", "answer", "wrong")
_SUBJECT = (
    r"(?P<open>[(\[]?)(?P<label>{label})[)\]]?[\"'*_]{{0,4}}\s*(?:is|would\s+be|must\s+be|seems)(?P<not>\s+not|n['’]t)?\s+"
    r"(?:also\s+)?(?:(?:the|our|my)\s+)?(?:only\s+|most\s+|final\s+)?(?P<un>in)?$"
)
_RIGHT = re.compile(
    r"answer\b|(?:correct|right|best)\s+(?:answer|choice|option|one|selection)\b|"
    r"(?:correct|right)(?=\s*(?:[.,;:!)\n]|$)|\s+(?:because|since|as|and|here|too)\b)",
    re.IGNORECASE,
)
_CLAIM_BEFORE = re.compile(
    r"(?:^|[.!?;:,\n]|\b(?:options?|choices?|answer|letter|statement|only|so|thus|therefore|hence|that|think|believe|say|because|"
    r"since|but|and|or|as|clearly|conclude|however|not|no|wait)\b)[\s\"'*_(]*$",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\w+(?:\s+(?:answer|choice|option|one))?\s+(?:if|unless|only|when)\b", re.IGNORECASE)
_WRONG = re.compile(r"(?:wrong|correct|right|best|answer)\b", re.IGNORECASE)
_SUBJECT_CHARS = 64


def markers(text: str) -> list[Place]:
    """Announcements, in the order of the text; of those that overlap, the first and longest."""
    lower = _lower(text)
    found = [match for words, pattern in _ANNOUNCING for match in _at_words(lower, words, pattern, text)]
    found.sort(key=lambda match: (match.start(), -match.end()))
    places: list[Place] = []
    end = -1
    for match in found:
        if match.start() >= end and (place := _announced(text, match)) is not None:
            places.append(place)
            end = match.end()
    return places[-MAX_PLACES:]


def claims(text: str, options: Options) -> list[Place]:
    """Claims: "B is correct", "therefore B.", "but it's B."."""
    lower = _lower(text)
    therefore, subject = _patterns(options.label)
    places = [
        Place("claim", match.start(), match.start("label"), match.end("label"))
        for match in _at_words(lower, _CONCLUDING, therefore, text)
        if match["label"].isupper() or match["open"]
    ]
    judged = (_claimed(text, match.start(), subject) for match in _at_words(lower, _JUDGING, _WRONG, text))
    return places + [place for place in judged if place is not None]


def _lower(text: str) -> str:
    """The text in lower case, character for character."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _at_words(lower: str, words: Iterable[str], pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Matches of the pattern that begin at one of the words; the last `MAX_PLACES`, in the order of the text."""
    found = [match for word in words for match in deque(_at_word(lower, word, pattern, text), maxlen=MAX_PLACES)]
    return sorted(found, key=lambda match: match.start())[-MAX_PLACES:]


def _at_word(lower: str, word: str, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    position = lower.find(word)
    while position >= 0:
        match = pattern.match(text, position)
        if match is not None:
            yield match
        position = lower.find(word, position + len(word))


def _announced(text: str, match: re.Match[str]) -> Place | None:
    """The place behind an announcement, unless it is a doubt or a figure of speech."""
    groups = match.groupdict()
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    is_verb = groups.get("verb") is not None
    if groups.get("heading") is not None and not _HEADING_BEFORE.search(before[-24:]):
        return None
    if groups.get("opinion") is not None and not _I_BEFORE.search(before[-16:]):
        return None
    if not is_verb and _DOUBT.search(before):
        return None
    if is_verb:
        denies = _NOT_BEFORE.search(before[-24:]) is not None
    else:
        denies = before.endswith(("不", "没")) or _WRONG_BEFORE.search(before) is not None
    return Place("marker", match.start(), match.end(), min(len(text), match.end() + SENTENCE_CHARS), denies)


def _claimed(text: str, word: int, subject: re.Pattern[str]) -> Place | None:
    """The claim whose judging word ("correct", or that part of "incorrect") stands at `word`."""
    match = subject.search(text, max(0, word - _SUBJECT_CHARS), word)
    if match is None or (match["label"].islower() and not match["open"]):
        return None
    is_wrong = match["un"] is not None or text[word : word + 5].lower() == "wrong"
    is_denied = match["not"] is not None
    if not is_wrong and not is_denied and (not _RIGHT.match(text, word) or _CONDITION.match(text, word)):
        return None
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    if _DOUBT.search(before) or not _CLAIM_BEFORE.search(before[-24:]):
        return None
    return Place("claim", match.start(), match.start("label"), match.end("label"), is_denied != is_wrong)


@lru_cache(maxsize=64)
def _patterns(label: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return (
        re.compile(_THEREFORE.format(label=label), re.IGNORECASE),
        re.compile(_SUBJECT.format(label=label), re.IGNORECASE),
    )
