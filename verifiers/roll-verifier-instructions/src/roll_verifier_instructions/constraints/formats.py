"""`detectable_format:*`: JSON, bullets, sections, highlights, titles, fixed answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from roll_verifier_instructions.base import Constraint, Count, Finding, Text, compare
from roll_verifier_instructions.text import has_words, without_code, words

_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@dataclass(frozen=True)
class ConstrainedResponse(Constraint):
    """Exactly one of "My answer is yes.", "My answer is no.", "My answer is maybe." occurs, letter for letter.

    Other text may surround it (the prompts ask to include the phrase); it may occur twice.

    Deviates: the official checker takes a response that holds two or all three of them.
    """

    id = "detectable_format:constrained_response"

    def _check(self, text: str) -> Finding:
        plain = " ".join(text.split())
        found = [option for option in _OPTIONS if option in plain]
        return Finding(len(found) == 1, f"{len(found)} of the three answers")


_FENCED = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\n(.*?)\n?[ \t]*\1", re.DOTALL)


@dataclass(frozen=True)
class JsonFormat(Constraint):
    """The whole response is one JSON object or array, bare or in one closed code fence of any name.

    Deviates: the official checker takes a bare number or string, NaN and Infinity, a fence that is opened or closed
    alone, and refuses fences with other names than json, Json and JSON.
    """

    id = "detectable_format:json_format"

    def _check(self, text: str) -> Finding:
        stripped = text.strip()
        fenced = _FENCED.fullmatch(stripped) if stripped[:3] in ("```", "~~~") else None
        try:
            value = json.loads(fenced[2] if fenced else stripped, parse_int=str, parse_constant=_refuse)
        except RecursionError:
            return Finding(False, "JSON nested too deep")
        except ValueError as error:
            return Finding(False, f"not JSON: {error}")
        is_wrapped = isinstance(value, dict | list)
        return Finding(is_wrapped, "JSON" if is_wrapped else "a bare JSON value, no object or array")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True)
class MultipleSections(Constraint):
    """At least `num_sections` sections, each begun by the splitter with a number of its own, each with some content.

    "Section 1", "**Section 1:**", "# Section I", "Section-1" at the beginning of a line (behind markup) or behind the
    end of a sentence; the case of the splitter counts. A number that comes again is the same section. "At least", as
    in the official checker: some prompts ask for more than the number says.

    Deviates: the official checker counts the splitter with a number anywhere ("as Section 2 says", "SUBSECTION 1"), the
    same number again, and sections without content; Roman numerals are unknown to it.
    """

    id = "detectable_format:multiple_sections"
    section_spliter: Text
    num_sections: Count

    def _check(self, text: str) -> Finding:
        heads = [head for head in _heads(self.section_spliter).finditer(text) if _begins(text, head.start())]
        bounds = [head.start() for head in heads[1:]] + [len(text)]
        filled = {head[1] for head, end in zip(heads, bounds, strict=False) if has_words(text[head.end() : end])}
        return compare(len(filled), "at least", self.num_sections, f"sections '{self.section_spliter}'")


@lru_cache(maxsize=64)
def _heads(splitter: str) -> re.Pattern[str]:
    name = r"\s+".join(map(re.escape, splitter.split()))
    return re.compile(rf"(?<!\w){name}[ \t_#.:\u00a0-]{{0,3}}(\d+(?!\w)|[IVXLC]+(?=[ \t]*(?:[^\w\s]|\n|$)))")


def _begins(text: str, position: int) -> bool:
    """Whether a line or sentence begins at `position`."""
    before = text[max(0, position - 30) : position].rpartition("\n")[2].rstrip(" \t*_#\"“'‘([>-–—|")
    return not has_words(before) or before.rstrip("\"”’'*_)]")[-1:] in (".", "!", "?", "…", "*")


_BULLET = re.compile(r"[\s>]*[\"“]?[*+-][ \t]+(?=\S)(.*)")
_RULE = re.compile(r"\s*(?:[*_-][ \t]*){3,}")


@dataclass(frozen=True)
class NumberBulletLists(Constraint):
    """Exactly `num_bullets` markdown bullets: lines with `*`, `-` or `+`, a blank, and a text.

    Indented bullets count. Dividers (`---`, `* * *`), `**bold**` and `*italic*` lines, numbers ("-5"), numbered items,
    "•" and lines in code blocks do not.

    Deviates: the official checker counts `---`, "-5 degrees" and an `*italic*` line, and does not know `+`.
    """

    id = "detectable_format:number_bullet_lists"
    num_bullets: Count

    def _check(self, text: str) -> Finding:
        lines = without_code(text).split("\n")
        found = sum(1 for line in lines if not _RULE.fullmatch(line) and _is_bullet(line))
        return Finding(found == self.num_bullets, f"{found} bullets, wanted {self.num_bullets}")


def _is_bullet(line: str) -> bool:
    match = _BULLET.match(line)
    return match is not None and has_words(match[1])


@dataclass(frozen=True)
class HighlightedSections(Constraint):
    """At least `num_highlights` highlighted stretches: `*one*`, `**two**` or `***three***` asterisks around a text.

    As in markdown: on one line, no blank inside of the asterisks, the same number on both sides, a letter or digit
    between; not inside of a word or of code. A highlight in a highlight is part of it: one in all.

    Deviates: the official checker counts `5 * 3 * 2`, the text between two bullets' asterisks, and one nested highlight
    up to four times.
    """

    id = "detectable_format:number_highlighted_sections"
    num_highlights: Count

    def _check(self, text: str) -> Finding:
        found = sum(_highlights(line) for line in without_code(text).split("\n"))
        return compare(found, "at least", self.num_highlights, "highlights")


_STARS = re.compile(r"(?<![\\*])\*{1,3}(?!\*)")


def _highlights(line: str) -> int:
    """Outermost highlights of a line, in one pass."""
    spans: list[tuple[int, int]] = []
    opened: list[re.Match[str]] = []
    for run in _STARS.finditer(line):
        before, after = line[run.start() - 1 : run.start()], line[run.end() : run.end() + 1]
        may_close = before.strip() != "" and not after.isalnum()
        may_open = after.strip() != "" and not before.isalnum()
        depth = _matching(opened, run) if may_close else None
        if depth is not None:
            start = opened[depth]
            del opened[depth:]
            if has_words(line[start.end() : run.start()]):
                spans.append((start.start(), run.end()))
        elif may_open:
            opened.append(run)
    return sum(1 for _ in _outermost(spans))


def _matching(opened: list[re.Match[str]], run: re.Match[str]) -> int | None:
    """The last open run of the same length, among the last ones."""
    for depth in range(len(opened) - 1, max(-1, len(opened) - 9), -1):
        if len(opened[depth][0]) == len(run[0]):
            return depth
    return None


def _outermost(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    end = -1
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if span[0] >= end:
            end = span[1]
            yield span


_TITLE = re.compile(r"(?<![\w<])<<((?:(?!<<|>>)[^\n])+)>>(?![\w>])")
_TITLE_WORDS = 30


@dataclass(frozen=True)
class Title(Constraint):
    """A title in double angular brackets: `<<a text with a letter or digit>>` on one line, 30 words at most.

    Where blanks stand inside of the brackets (`<< title >>`), it must begin its line, behind markup at most.

    Deviates: the official checker takes operators of program code (`cout << a; cin >> b`, `1<<n>>2`) and a whole
    paragraph in brackets.
    """

    id = "detectable_format:title"

    def _check(self, text: str) -> Finding:
        for found in _TITLE.finditer(text):
            inside = found[1]
            is_tight = inside == inside.strip() or not _line_before(text, found.start())
            if is_tight and has_words(inside) and len(words(inside[:2000])) <= _TITLE_WORDS:
                return Finding(True, f"title {inside.strip()[:60]!r}")
        return Finding(False, "no <<title>>")


def _line_before(text: str, position: int) -> bool:
    return has_words(text[max(0, position - 200) : position].rpartition("\n")[2])
