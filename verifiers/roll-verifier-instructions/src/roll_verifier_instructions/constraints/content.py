"""`detectable_content:*`: placeholders and postscripts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from roll_verifier_instructions.base import Constraint, Count, Finding, Text, compare
from roll_verifier_instructions.text import has_words

_TARGET = r"\((?:[a-z]+:|www\.|[/#.]|[\w-]+\.[a-z]{2,})[^()\n]*\)"
_BRACKETS = re.compile(rf"(?<!\\)\[([^\[\]\n]+)\]({_TARGET})?", re.IGNORECASE)
_CHECKBOX = re.compile(r"(?m)^[ \t>]*[-*+][ \t]+\[[xX]\](?=\s)")

_MARKUP = r"[*_\"'“”‘’>#~`(\[ \t\u00a0-]*+"
_SENTENCE_END = r"(?<=\w)[.!?…][\"'”’)*_]*+[ \t]++"
_BLOCKS_BEHIND = 2


@dataclass(frozen=True)
class NumberPlaceholders(Constraint):
    r"""At least `num_placeholders` placeholders: square brackets on one line around a text that has a letter.

    The same placeholder counts each time. Not placeholders: `[]`, numbers (`[1]`), footnotes (`[^a]`), checkboxes
    (`- [x]`), links (`[text](https://…)`), lists of quoted strings (`["a"]`), formulas (`\[x\]`); of brackets in
    brackets the inner ones count.

    Deviates: the official checker counts every pair of brackets, those too.
    """

    id = "detectable_content:number_placeholders"
    num_placeholders: Count

    def _check(self, text: str) -> Finding:
        found = sum(map(_is_placeholder, _BRACKETS.finditer(_CHECKBOX.sub("", text))))
        return compare(found, "at least", self.num_placeholders, "placeholders")


def _is_placeholder(match: re.Match[str]) -> bool:
    inside = match[1].strip()
    is_other = match[2] is not None or inside.startswith(("^", '"', "'", "\\"))
    return not is_other and any(map(str.isalpha, inside))


@dataclass(frozen=True)
class Postscript(Constraint):
    """The response ends with a postscript that begins with the marker and says something.

    The marker (whatever its case, with or without a blank behind its dots, in emphasis or not) begins a line or
    follows the end of a sentence, and text stands before and behind it. At most two more paragraphs may follow that of
    the last marker (a closing phrase, a signature). "P.P.S" needs no dot at its end; "P.S." is not found in "P.P.S.".

    Deviates: the official checker finds the marker anywhere, in the middle of a sentence, in "P.P.S.", with nothing
    behind it.
    """

    id = "detectable_content:postscript"
    postscript_marker: Text

    def _check(self, text: str) -> Finding:
        starts = list(_marker(self.postscript_marker).finditer(text))
        if not starts:
            return Finding(False, f"no postscript '{self.postscript_marker}'")
        last = starts[-1]
        behind = text[last.end() :]
        if not has_words(behind):
            return Finding(False, "the postscript is empty")
        if not has_words(text[: starts[0].start()]):
            return Finding(False, "nothing stands before the postscript")
        blocks = [block for block in re.split(r"\n[ \t]*\n", behind.strip()) if has_words(block)]
        if len(blocks) > _BLOCKS_BEHIND + 1:
            return Finding(False, f"{len(blocks) - 1} paragraphs follow the postscript")
        return Finding(True, "postscript at the end")


@lru_cache(maxsize=64)
def _marker(marker: str) -> re.Pattern[str]:
    letters = re.findall(r"\w", marker)
    if re.fullmatch(r"(?:\w\.\s?)+\w?\.?", marker):  # P.S., P.P.S
        body = r"\.\s?".join(letters) + (r"\." if marker.endswith(".") else r"(?!\w)")
    else:
        body = r"\s+".join(map(re.escape, marker.split())) + (r"(?!\w)" if marker[-1].isalnum() else "")
    lead = _MARKUP if re.match(r"\w", marker) else ""
    return re.compile(rf"(?:(?:^|\n){lead}|{_SENTENCE_END}{lead}){body}", re.IGNORECASE)
