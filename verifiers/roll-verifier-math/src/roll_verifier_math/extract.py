r"""The final answer of a response: the last box, else a tagged or announced answer, else the last number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from roll_verifier_math.bounds import MAX_ANSWER_CHARS, MAX_RESPONSE_CHARS

Mode = Literal["boxed", "last", "auto"]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BETWEEN_BOXES = re.compile(r"(?:\s|[$,;.()\[\]\\&*]|and\b|or\b)*")
_MARKER = re.compile(
    r"(?:\banswer\b(?:\s*(?:is|:|=|：|are))(?:\s*(?:is|:|\*\*))*|最终答案\s*[:：]|答案\s*[:：是为])", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|[!?](?=\s+[A-Z]|$)|。")
_REMARK = re.compile(r"\s*\((?:i\.e\.|that is|which is|about|approximately|or about)[^()]*\)\s*$", re.IGNORECASE)
_BECAUSE = re.compile(r",?\s+(?:because|since|as|so)\s.*$", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?\s?(?:\\?\$\s?)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?(?:\s*\\?%)?(?![\w])"
)
_MATH = re.compile(r"\$\$(.{1,500}?)\$\$|\$([^$\n]{1,500})\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]", re.DOTALL)
_SHORT = 64
_TAIL = 10_000
"""Characters at the end of a response in which the last formula or number is looked for."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer's text and where it was found ("boxed", "tag", "marker", "last", "whole")."""

    text: str
    where: str


def extract(response: str, mode: Mode) -> Extraction | None:
    """Find the final answer; None when the response gives none.

    Args:
        response: what the policy wrote. Thinking (`<think>…</think>`) does not count; thinking that never ended
            leaves no answer.
        mode: "boxed" takes only boxes, "last" only the last formula or number, "auto" whatever the response offers,
            in the order box, `<answer>` tag, "answer is", last number.
    """
    text = _after_thinking(response[-MAX_RESPONSE_CHARS:])
    if mode != "last":
        boxes, is_broken = _boxes(text)
        if boxes or is_broken:
            answer = _joined(boxes) if boxes and not is_broken else ""
            return Extraction(answer, "boxed") if answer.strip() else None
        if mode == "boxed":
            return None
        if found := _announced(text):
            return found
    return _last(text)


def _after_thinking(text: str) -> str:
    return text.rpartition("</think>")[2].partition("<think>")[0]


# --- boxes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Box:
    start: int
    end: int
    text: str


def _boxes(text: str) -> tuple[list[str], bool]:
    """Contents of the last box and of those it stands in one row with; and whether the last box never closes."""
    row: list[_Box] = []
    position = 0
    while match := _BOX.search(text, position):
        box = _box(text, match)
        if box is None:
            return [], True
        if row and not _BETWEEN_BOXES.fullmatch(text, row[-1].end, box.start):
            row = []
        row.append(box)
        position = box.end
    return [box.text for box in row], False


def _box(text: str, match: re.Match[str]) -> _Box | None:
    begin = match.end()
    if begin >= len(text):
        return None
    if text[begin] != "{":
        token = re.compile(r"-?\d+(?:\.\d+)?|\\[a-zA-Z]+|[A-Za-z]").match(text, begin)
        return _Box(match.start(), token.end(), token[0]) if token else None
    depth = 0
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
                return _Box(match.start(), position + 1, text[begin + 1 : position])
        position += 1
    return None


def _joined(boxes: list[str]) -> str:
    distinct = list(dict.fromkeys(box.strip() for box in boxes))
    return ", ".join(distinct) if all(distinct) else ""


# --- announced answers, and the last number ---------------------------------------------------------------------------


def _announced(text: str) -> Extraction | None:
    before, closing, _ = text.rpartition("</answer>")
    if closing and "<answer>" in before:
        inner = before.rpartition("<answer>")[2].strip()
        return Extraction(inner, "tag") if inner else None
    matches = list(_MARKER.finditer(text))
    if not matches:
        return None
    rest = text[matches[-1].end() :][: 2 * MAX_ANSWER_CHARS].lstrip(" \t\r\n*:：")
    line = rest.split("\n", 1)[0]
    formula = _MATH.match(line)
    if formula:
        return Extraction(next(g for g in formula.groups() if g is not None).strip(), "marker")
    answer = _SENTENCE_END.split(line, maxsplit=1)[0]
    answer = _BECAUSE.sub("", _REMARK.sub("", answer)).strip().strip("*").strip()
    answer = answer.rstrip("\\]").rstrip("\\") if answer.endswith("\\]") else answer
    return Extraction(answer, "marker") if answer and not answer.lower().startswith("not ") else None


def _last(response: str) -> Extraction | None:
    text = response[-_TAIL:]
    number = None
    for number in _NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    formula = None
    for formula in _MATH.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if formula and (number is None or formula.end() >= number.end()):
        return Extraction(next(g for g in formula.groups() if g is not None).strip(), "last")
    if number:
        return Extraction(number[0].strip(), "last")
    whole = response.strip()
    return Extraction(whole, "whole") if whole and len(whole) <= _SHORT and "\n" not in whole else None
