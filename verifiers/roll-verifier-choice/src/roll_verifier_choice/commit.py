"""Which option a response commits to in the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roll_verifier_choice.find import last_line, opening, strong_places, styled_labels
from roll_verifier_choice.options import Options
from roll_verifier_choice.place import Place
from roll_verifier_choice.slot import MAX_SLOT_CHARS, Context, Slot, read_slot

Extract = Literal["auto", "boxed", "last"]

_SEPARATORS = re.compile(r"(?:[\s$,;.()\[\]\\&*|/#_-]|and\b|or\b|</?answer>)*", re.IGNORECASE)
_BREAK = re.compile(r"[.!?;](?=\s|$)|[\n。！？；]")
_TURN = re.compile(
    r"\b(?:wait|actually|rather|sorry|correction|instead|scratch|mistake|however|but|so|therefore|thus|hence|no)\b",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\b(?:also|as\s+well|too|equally|both)\b", re.IGNORECASE)
_OTHERWISE = (
    r"\b(?:or|alternatively|maybe|perhaps|possibly|(?:could|might|may)(?:\s+also)?\s+be)\b"
    r"(?:[\s,*$(\[]|\b(?:also|maybe|perhaps|possibly|even|it|could|might|may|be|the|answer|is|option|choice)\b|\\boxed\{{)*"
    r"(?P<label>{label})(?=\W*(?:$|[.,;!?\n)]|is\b|if\b|as\s+well))"
)
_UNDONE = re.compile(
    r"\W*(?:but|however|which|yet|although)\b[^.!?\n]{0,40}\b"
    r"(?:(?:is|was|would\s+be)\s+(?:wrong|incorrect|not\s+(?:right|correct|true)|a\s+mistake)|isn['’]t\s+(?:right|correct))",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\W*[AI]\s*[,;]\s*(?!because|since|as\b)")
_NEAR = 120


@dataclass(frozen=True, slots=True)
class Commitment:
    """What a place says, and where."""

    place: Place
    slot: Slot

    @property
    def end(self) -> int:
        """Where the reading ended, about."""
        return self.place.end if self.place.is_whole else min(self.place.end, self.place.begin + self.slot.end)


def commitment(text: str, options: Options, extract: Extract, *, multiple: bool) -> Slot:
    """The last committed answer of a response whose thinking is stripped; kind "none" when there is none.

    Args:
        text: cleaned text.
        options: the options there are.
        extract: where to look.
        multiple: whether several options may be chosen.
    """
    if extract == "last":
        line = last_line(text)
        text = "" if line is None else text[line.start : line.end]
    context = Context(options, multiple)
    strong = [_read(text, place, context) for place in strong_places(text, options, boxes_only=extract == "boxed")]
    said = [c for c in strong if c.slot.kind != "none" or c.place.where in ("boxed", "tag")]
    if said or extract == "boxed":
        return _last_word(text, said, context)
    return _weak(text, context)


def given_answer(text: str, options: Options, *, multiple: bool) -> Slot:
    """Read a bare final answer."""
    slot = read_slot(text, Context(options, multiple))
    return slot if slot.kind != "none" else commitment(text, options, "auto", multiple=multiple)


def _read(text: str, place: Place, context: Context) -> Commitment:
    written = text[place.begin : min(place.end, place.begin + MAX_SLOT_CHARS)]
    place = replace(place, begin=place.begin + len(written) - len(written.lstrip()))
    is_announced = place.where not in ("last_line", "opening")
    slot = read_slot(written, replace(context, is_whole=place.is_whole, is_announced=is_announced))
    if place.denies and slot.kind == "chosen":
        slot = replace(slot, kind="negated")
    elif slot.kind == "none" and place.where in ("boxed", "tag") and any(c.isalnum() for c in written):
        slot = Slot("not_an_option")
    return Commitment(place, slot)


# --- several commitments ----------------------------------------------------------------------------------------------


def _last_word(text: str, said: Sequence[Commitment], context: Context) -> Slot:
    """The last commitment, unless what stands near it takes it back."""
    denied = frozenset[int]()
    later: list[Commitment] = []
    for index in range(len(said) - 1, -1, -1):
        one = said[index]
        if one.slot.kind == "negated":
            denied |= one.slot.chosen
            continue
        if one.slot.kind != "chosen":
            return one.slot
        later.insert(0, one)
        before = said[index - 1] if index and said[index - 1].slot.kind != "negated" else None
        if before is None or not _stand_together(text, before, one):
            break
    if not later:
        return replace(said[-1].slot, kind="negated") if said else Slot("none")
    final = later[-1].slot
    if len({c.slot.chosen for c in later}) > 1:
        if not context.multiple or _is_alternative(text, later):
            return replace(final, kind="hedged")
        final = replace(final, chosen=frozenset[int]().union(*(c.slot.chosen for c in later)))
    if denied & final.chosen or _UNDONE.match(text, later[-1].end):
        return replace(final, kind="negated")
    return replace(final, kind="hedged") if _has_alternative_behind(text, later[-1], context.options, final) else final


def _stand_together(text: str, first: Commitment, second: Commitment) -> bool:
    """Whether two commitments are one statement: in one row, in one sentence, or joined by "also"."""
    between = text[min(first.end, second.place.start) : second.place.start]
    if len(between) > 400:
        return False
    if _SEPARATORS.fullmatch(between):
        return True
    if first.slot.chosen == second.slot.chosen:
        return False
    around = text[second.place.start : second.end + 30]
    if second.place.where == "claim" and _ALSO.search(_BREAK.split(around, maxsplit=1)[0]):
        return True
    return not _BREAK.search(between) and not _TURN.search(between)


def _is_alternative(text: str, row: Sequence[Commitment]) -> bool:
    stretch = text[row[0].end : row[-1].place.start]
    return re.search(r"\bor\b", stretch, re.IGNORECASE) is not None


def _has_alternative_behind(text: str, last: Commitment, options: Options, final: Slot) -> bool:
    """Whether another option follows as an alternative, as in "B. Or maybe C."."""
    match = re.search(_OTHERWISE.format(label=options.label), text[last.end : last.end + _NEAR], re.IGNORECASE)
    if match is None or match["label"].islower():
        return False
    found = options.find_label(match["label"])
    return found is not None and found not in final.chosen


# --- responses that announce nothing ----------------------------------------------------------------------------------


def _weak(text: str, context: Context) -> Slot:
    """The last line, or the opening of the response, when it is an option and nothing else."""
    line = last_line(text)
    if line is None:
        return Slot("none")
    slot = _read(text, line, context).slot
    if slot.kind != "none" and not _is_word(text[line.begin : line.end], slot, context):
        is_listed = slot.kind == "chosen" and (
            _enumerates(text, slot, context) or _ends_list(text, line, slot, context)
        )
        return replace(slot, kind="hedged") if is_listed else slot
    place = opening(text)
    slot = _read(text, place, context).slot
    if slot.kind == "chosen" and (_is_word(text, slot, context) or _enumerates(text, slot, context)):
        return Slot("none")
    return slot


def _enumerates(text: str, slot: Slot, context: Context) -> bool:
    """Whether the text walks through the options ("A) … B) …") and the slot may be one step of the walk."""
    labels = (context.options.find_label(label) for label in styled_labels(text))
    others = {found for found in labels if found is not None} - slot.chosen
    return bool(slot.text or slot.how == "text") and bool(others)


def _ends_list(text: str, line: Place, slot: Slot, context: Context) -> bool:
    """Whether the line before is another option of the same dress, so that the last line ends a list."""
    before = last_line(text[: line.start])
    if before is None:
        return False
    other = _read(text, before, context).slot
    alike = (other.how, bool(other.text)) == (slot.how, bool(slot.text))
    return other.kind == "chosen" and alike and other.chosen != slot.chosen


def _is_word(text: str, slot: Slot, context: Context) -> bool:
    """Whether an opening "A," or "I," is the article or the pronoun: no reason stands behind it."""
    labels = {context.options.labels[i] for i in slot.chosen}
    return len(labels) == 1 and labels <= {"A", "I"} and _ARTICLE.match(text) is not None
