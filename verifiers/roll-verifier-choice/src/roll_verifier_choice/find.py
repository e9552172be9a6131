r"""Where a response commits to an answer: boxes, tags, "the answer is", a line or an opening that is nothing else."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

from roll_verifier_choice.markers import MAX_PLACES, SENTENCE_CHARS, claims, markers
from roll_verifier_choice.options import Options
from roll_verifier_choice.place import Place

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_TAG_OPENING, _TAG_CLOSING = "<answer>", "</answer>"
_CONCLUDING = re.compile(
    r"\W*(?:(?:therefore|thus|hence|so|ans|final|finally|conclusion|in\s+conclusion|it\s+is|it['’]s|that\s+is|所以|因此)\b[\s,:，：]*)*",
    re.IGNORECASE,
)
_STYLED = re.compile(
    r"(?<![\w(\[])[(\[]?(?P<inline>[A-Z]|\d{1,2})[)\]]|"
    r"(?:^|\n)[\s>*_-]{0,6}(?:[Oo]ption\s+|[Cc]hoice\s+)?(?P<line>[A-Z]|\d{1,2})[*_]*[.:]"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_CHECKED = 80


def strong_places(text: str, options: Options, *, boxes_only: bool = False) -> list[Place]:
    """Boxes, tags, markers and claims in the order of the text; one inside another counts once."""
    found = [*_last(_boxes(text))]
    if not boxes_only:
        found += [*_last(_tags(text)), *markers(text), *claims(text, options)]
    found.sort(key=lambda place: (place.start, -place.end))
    kept: list[Place] = []
    for place in found:
        if kept and kept[-1].is_whole and place.start < kept[-1].end:
            continue
        if (
            kept
            and place.is_whole
            and kept[-1].where == "marker"
            and not text[kept[-1].begin : place.start].strip(" \n\t$*_:\\[(")
        ):
            kept.pop()
        kept.append(place)
    return kept


def _last(places: Iterable[Place]) -> Iterable[Place]:
    return deque(places, maxlen=MAX_PLACES)


def _boxes(text: str) -> Iterator[Place]:
    position = 0
    while match := _BOX.search(text, position):
        end = _closing(text, match.end())
        if end is None:
            yield Place("boxed", match.start(), match.end(), match.end())  # never closed: an answer that is none
            return
        yield Place("boxed", match.start(), match.end() + (text[match.end()] == "{"), end - (text[match.end()] == "{"))
        position = end


def _closing(text: str, begin: int) -> int | None:
    """Where the group that starts at `begin` ends: behind its brace, or behind one character."""
    if begin >= len(text):
        return None
    if text[begin] != "{":
        return begin + 1
    depth = 0
    for match in _BRACE.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return None


def _tags(text: str) -> Iterator[Place]:
    lower, position = text.lower() if len(text.lower()) == len(text) else text, 0
    while (end := lower.find(_TAG_CLOSING, position)) >= 0:
        start = lower.rfind(_TAG_OPENING, position, end)
        if start >= 0:
            yield Place("tag", start, start + len(_TAG_OPENING), end)
        position = end + len(_TAG_CLOSING)


# --- without a box, tag or marker -------------------------------------------------------------------------------------


def styled_labels(text: str) -> set[str]:
    """Labels that stand as such in a text, as in "(B)", or "B." at the beginning of a line."""
    return {match["inline"] or match["line"] for match in _STYLED.finditer(text)}


def last_line(text: str) -> Place | None:
    """The last line that is not blank, behind "therefore" and the like."""
    stripped = text.rstrip()
    if not stripped:
        return None
    start = stripped.rfind("\n") + 1
    lead = _CONCLUDING.match(stripped, start)
    begin = lead.end() if lead is not None else start
    return Place("last_line", start, start if begin >= len(stripped) else begin, len(stripped))


def opening(text: str) -> Place:
    """The beginning of the response."""
    start = len(text) - len(text.lstrip())
    return Place("opening", start, start, min(len(text), start + SENTENCE_CHARS))
