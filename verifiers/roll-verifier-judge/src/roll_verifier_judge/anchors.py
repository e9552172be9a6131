"""Verdicts in free text: the last one that is announced as such."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roll_verifier_judge import vocabulary
from roll_verifier_judge.fences import without_fences
from roll_verifier_judge.speech import is_foreign
from roll_verifier_judge.values import Found, Reader, Refused, opening_end, read_whole, tail_problem

_MARKS = r"[ \t*_`\"'”’»\])}]"
_QUALIFIER = (
    r"(?:[ \t]*[(\[][^()\[\]\n]{0,40}[)\]]|[ \t]*\bout[ \t]+of[ \t]+\d{1,6}|/[ \t]?\d{1,6}"
    r"|[ \t]*\b(?P<about>(?:for|of|to|on)[ \t]+(?:[\w'’-]+[ \t]+){0,5}?[\w'’-]+))"
)
_MARK = re.compile(r"\[(?:result|score|rating|grade|verdict|judge?ment)\][ \t]*:?", re.IGNORECASE)
_BRACKETS = re.compile(r"\[\[([^\[\]\n]{0,80})\]\]")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_QUOTED = re.compile(
    r"""(?<!\w)'[^'\n]{1,300}'(?!\w)|"[^"\n]{1,300}"|“[^”\n]{1,300}”|‘[^’\n]{1,300}’|`[^`\n]{1,300}`"""
    r"""|«[^»\n]{1,300}»|「[^」\n]{1,300}」|『[^』\n]{1,300}』|^[ \t]*>[^\n]*""",
    re.MULTILINE,
)
_LAST_WORD = re.compile(r"([^\W_]+)[ \t]*\Z")
_LAST_WIDE = re.compile(r"[\u2e80-\uffef]+\Z")
_AFTER_NAME = r"(?:[ \t]+(?:final|finale|total|totale|global|globale|general|générale)\b)?"
_ONE_TOKEN = re.compile(r"[^\s,.;:!?)\]}]{1,30}[*_`\"'”’)\]]*[ \t]*(?:[,.;:!?)\]]|\n|$)")


@dataclass(frozen=True, slots=True)
class Anchor:
    """An announced verdict: where it begins, what it says, and whether its name is that of one aspect only."""

    start: int
    end: int
    value: Any
    """The value, or `Refused`."""
    is_aspect: bool = False


@functools.lru_cache(maxsize=64)
def _named(words: tuple[str, ...]) -> re.Pattern[str]:
    latin = sorted((re.escape(w).replace(r"\ ", r"\s+") for w in words if w < "\u2e80"), key=len, reverse=True)
    wide = sorted((re.escape(w) for w in words if w >= "\u2e80"), key=len, reverse=True)
    parts = [rf"(?<![^\W_])(?:{'|'.join(latin)})(?![^\W_])"] if latin else []
    parts += [rf"(?:{'|'.join(wide)})"] if wide else []
    verb = rf"(?P<verb>(?:\b(?:{vocabulary.SEPARATORS})\b|{vocabulary.WIDE_SEPARATORS})[ \t]*:?|\bof\b)"
    return re.compile(
        rf"(?P<name>{'|'.join(parts)}){_AFTER_NAME}{_MARKS}{{0,6}}{_QUALIFIER}?{_MARKS}{{0,6}}"
        rf"(?::=?|=>|->|→|=|(?<=[\s*_])[-–—](?=\s)|[–—]|{verb})",
        re.IGNORECASE,
    )


def last_verdict(text: str, reader: Reader, key: str | None) -> Anchor | None:
    r"""The last announced verdict of a text; None when there is none.

    Announced are values after a verdict's name ("Score: 7", "the rating is 7"), in double square brackets and in
    `\boxed{}`. Those inside quotes and fences do not count, nor those that are somebody else's words; aspects
    ("clarity score: 9") count when there is nothing but one aspect.

    Args:
        text: a cleaned reply, structured parts blanked.
        reader: of the scale's value.
        key: name of the verdict in structured replies, which is good as a name here too.
    """
    words = (*vocabulary.STRONG, *((key.lower().replace("_", " "),) if key else ()))
    text = unfenced(text)
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    found = [*_after_names(text, reader, words, quoted), *_in_brackets(text, reader, quoted)]
    found += [*_under_headings(text, reader, words), *_after_marks(text, reader, quoted)]
    if not found:
        weak = vocabulary.WEAK_FOR_NUMBERS if reader.is_number else vocabulary.WEAK_FOR_LABELS
        found = [a for a in _after_names(text, reader, weak, quoted, is_weak=True) if not isinstance(a.value, Refused)]
    overall = [anchor for anchor in found if not anchor.is_aspect]
    if overall:
        return max(overall, key=lambda anchor: anchor.start)
    if len({repr(anchor.value) for anchor in found}) > 1:
        return Anchor(found[-1].start, found[-1].end, Refused("several_aspects"))
    return found[-1] if found else None


def unfenced(text: str) -> str:
    """The text with fenced blocks blanked, save one that is the whole text or stands where a value is due."""
    return without_fences(text, _is_due, "\ufffc\n")


def _is_due(before: str) -> bool:
    before = before.rstrip(" \t\n*_")
    return before.endswith((":", "=")) and any(
        name.end() == len(before) for name in _named(vocabulary.STRONG).finditer(before)
    )


def _after_names(
    text: str, reader: Reader, words: tuple[str, ...], quoted: Sequence[tuple[int, int]], *, is_weak: bool = False
) -> list[Anchor]:
    anchors = []
    for match in _named(words).finditer(text):
        is_verb = match["verb"] is not None
        if (is_weak and is_verb) or _is_inside(match.span(), quoted) or is_foreign(text, match.start()):
            continue
        start = opening_end(text, match.end())
        value, end = _slot(text, match.end(), start, reader, is_strict=is_weak)
        if is_verb and isinstance(value, Refused) and not _is_a_slot(text, start, reader, match["verb"]):
            continue
        anchors.append(Anchor(match.start(), end, value, _is_aspect(text, match)))
    return anchors


def _slot(text: str, separator_end: int, start: int, reader: Reader, *, is_strict: bool) -> tuple[Any, int]:
    """The single value of the slot that begins at `start`, or `Refused`, and where it ends."""
    found = reader.read_at(text, start)
    if isinstance(found, Refused):
        is_empty = start >= len(text) or text[start] in "?<[{_…"
        return (Refused("no_verdict") if is_empty else found), start
    is_new_line = is_strict or "\n" in text[separator_end:start]
    problem = tail_problem(reader, text, found, is_new_line=is_new_line)
    return (Refused(problem) if problem else found.value), found.end


def _is_a_slot(text: str, start: int, reader: Reader, verb: str) -> bool:
    """Whether a verb leads to a slot ("the grade is X."), not to prose ("the grade is based on …")."""
    if isinstance(reader.read_at(text, start), Found):
        return True
    return verb.lower() != "of" and bool(_ONE_TOKEN.match(text, start))


def _after_marks(text: str, reader: Reader, quoted: Sequence[tuple[int, int]]) -> list[Anchor]:
    """Values after a mark such as `[RESULT]`."""
    anchors = []
    for match in _MARK.finditer(text):
        value, end = _slot(text, match.end(), opening_end(text, match.end()), reader, is_strict=True)
        if not isinstance(value, Refused) and not _is_inside(match.span(), quoted):
            anchors.append(Anchor(match.start(), end, value))
    return anchors


def _in_brackets(text: str, reader: Reader, quoted: Sequence[tuple[int, int]]) -> list[Anchor]:
    r"""Values in `[[…]]` and `\boxed{…}`."""
    spans = [(m.start(), m.end(), m[1]) for m in _BRACKETS.finditer(text)]
    for match in _BOXED.finditer(text):
        end = _closing(text, match.end())
        if end is not None:
            spans.append((match.start(), end, text[match.end() : end - 1]))
    anchors: list[Anchor] = []
    for start, end, inside in sorted(spans):
        if _is_inside((start, end), quoted) or is_foreign(text, start):
            continue
        value = read_whole(reader, inside)
        if not isinstance(value, Refused) and tail_problem(reader, text, Found(value, end), is_new_line=False) == (
            "two_values"
        ):
            value = Refused("two_values")
        if anchors and _joins(text[anchors[-1].end : start]) and anchors[-1].value != value:
            value = Refused("two_values")
        anchors.append(Anchor(start, end, value))
    return anchors


def _closing(text: str, start: int) -> int | None:
    depth = 1
    for position in range(start, min(len(text), start + 200)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return None


def _joins(between: str) -> bool:
    return between.strip(" \t\"'`*").lower() in (
        "or",
        "/",
        "|",
        "and",
        ",",
        "or maybe",
        "vs",
        "vs.",
        "或",
        "oder",
        "ou",
    )


def _under_headings(text: str, reader: Reader, words: tuple[str, ...]) -> list[Anchor]:
    """A heading that names the verdict, and the value alone on the next line that is not blank."""
    anchors = []
    lines = [(m.start(), m[0].strip()) for m in re.finditer(r"[^\n]+", text) if m[0].strip()]
    for (start, line), (below, value_line) in itertools.pairwise(lines):
        name = re.fullmatch(r"(?:#{1,6}[ \t]*[*_]{0,2}|[*_]{2})([^*_#:]{1,40}?)[*_]{0,2}", line)
        if name is None or len(name[1].split()) > 3 or not _named(words).search(name[1] + ":"):
            continue
        value = read_whole(reader, value_line)
        if not isinstance(value, Refused):
            anchors.append(Anchor(start, below + len(value_line), value))
    return anchors


def _is_inside(span: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the sorted, disjoint `spans` holds `span`."""
    index = bisect.bisect_right(spans, span[0], key=lambda one: one[0]) - 1
    return index >= 0 and span[1] <= spans[index][1]


def _is_aspect(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 40) : match.start()]
    wide = _LAST_WIDE.search(before) if match["name"] >= "\u2e80" else None
    if wide is not None:
        return wide[0].isalpha() and not any(wide[0].endswith(word) for word in vocabulary.NEUTRAL if word >= "\u2e80")
    word = _LAST_WORD.search(before)
    if before.endswith("-") or (word is not None and word[1].lower() not in vocabulary.NEUTRAL):
        return before.endswith("-") or not (word is not None and word[1].isdigit())
    about = [part.lower() for part in re.findall(r"\w+", match["about"] or "")[1:]]
    return any(part not in vocabulary.NEUTRAL for part in about)
