"""What stands where an answer is expected: one option, several, none, or something undecided."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from roll_verifier_choice.options import Options
from roll_verifier_choice.text import without_boxes
from roll_verifier_choice.vocabulary import (
    ALL,
    AND,
    BUT,
    CONNECTIVE,
    DELIMITER,
    END,
    FILLER,
    LABEL_BEHIND,
    LEAD,
    NOT,
    OR,
    OTHER,
    REASON,
    SEGMENT_END,
    TERMINAL,
    UNSURE,
)

MAX_SLOT_CHARS = 2_000

Kind = Literal["chosen", "hedged", "negated", "contradiction", "out_of_range", "not_an_option", "none"]


@dataclass(frozen=True, slots=True)
class Slot:
    """What was read."""

    kind: Kind
    chosen: frozenset[int] = frozenset()
    """Positions; of a negated slot those denied."""
    how: str = ""
    """"letter", "text", or "letter_and_text"."""
    text: str = ""
    """What stands beside a letter, as written."""
    end: int = 0
    """How far of the slot was read, about."""


_NONE = Slot("none")


@lru_cache(maxsize=64)
def _patterns(label: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    head = rf"{LEAD}(?P<open>[(\[{{]?)\s*(?P<label>{label})(?:[ \t]*(?P<close>[)\]}}]+))?[*_\"'”’]*"
    more = (
        rf"\s*(?:\([^()\n]{{1,30}}\)\s*)?[(\[]?\s*(?:(?P<or>{OR})|(?P<and>{AND}))(?P<fill>{FILLER})\s*(?P<open>[(\[{{]?)\s*(?P<label>{label})"
        rf"\s*[)\]}}]*(?P<terminal>{TERMINAL})?"
    )
    return (
        re.compile(head, re.IGNORECASE),
        re.compile(more, re.IGNORECASE),
        re.compile(LABEL_BEHIND.format(label=label)),
    )


@dataclass(frozen=True, slots=True)
class Context:
    """How an answer is to be read."""

    options: Options
    multiple: bool = False
    """Whether several options may be chosen."""
    is_whole: bool = True
    """Whether the text ends with the answer (a box, a tag, a line), or goes on (a sentence)."""
    is_announced: bool = True
    """Whether something before the text says that an answer follows; without, a letter may be a sentence's subject."""


def read_slot(written: str, context: Context) -> Slot:
    """Read what stands where an answer is expected."""
    text = without_boxes(written[:MAX_SLOT_CHARS])
    found = _bare_text(text, context)
    letter = _read_letters(text, context)
    if found is not None and (letter.kind != "chosen" or letter.text):
        return letter if letter.how == "letter_and_text" else Slot("chosen", frozenset({found}), "text", end=len(text))
    if letter.kind == "none" and context.is_announced and ALL.match(text):
        return Slot("hedged")
    return letter


def _bare_text(text: str, context: Context) -> int | None:
    """The option whose text this is: all of it, or in a sentence its first line or clause."""
    options = context.options
    parts = [text] if context.is_whole else [text, text.partition("\n")[0], SEGMENT_END.split(text, maxsplit=1)[0]]
    named = (options.find_text(part) for part in parts if options.find_label(part.strip(" .:()")) is None)
    return next((found for found in named if found is not None), None)


# --- letters ----------------------------------------------------------------------------------------------------------


def _read_letters(text: str, context: Context) -> Slot:
    if (denied := NOT.match(text)) is not None:
        return _denied(text[denied.end() :], context)
    options, multiple = context.options, context.multiple
    head, more, behind = _patterns(options.label)
    if multiple and context.is_whole and (joined := _joined(text, options)):
        return joined
    lead = ALL.match(text)
    match = head.match(text, lead.end() if lead else 0)
    if match is None:
        return _label_behind(text, behind.fullmatch(text if context.is_whole else text.partition("\n")[0]), options)
    labels, position, is_or = [match["label"]], match.end(), False
    while (extra := more.match(text, position)) is not None and _counts(extra):
        labels.append(extra["label"])
        is_or = is_or or extra["or"] is not None or "or" in extra["fill"].split()
        position = extra.end()
    positions = [options.find_label(label) for label in labels]
    chosen = frozenset(i for i in positions if i is not None)
    is_joint = lead is not None and lead[0].strip().lower() in ("both", "all")
    if (len(set(labels)) > 1 and (is_or or not multiple)) or (lead is not None and not (multiple and is_joint)):
        return Slot("hedged", chosen, end=position)
    return _single(text, match, position, context) if len(labels) == 1 else _several(positions, position)


def _denied(rest: str, context: Context) -> Slot:
    """Read "B" of "not B", or "C" of "not B but C"."""
    denied = _NONE if NOT.match(rest) else _read_letters(rest, context)
    if denied.kind != "chosen":
        return Slot("negated")
    turn = BUT.match(rest, denied.end)
    if turn is not None:
        return _read_letters(rest[turn.end() :], context)
    return Slot("negated", denied.chosen, end=denied.end)


def _counts(extra: re.Match[str]) -> bool:
    """Whether a second letter is one, not the article, the pronoun, or the beginning of a word's explanation."""
    if extra["label"] in "ai" and not extra["open"]:
        return False
    if extra["terminal"] is not None or extra["open"]:
        return True
    return extra["label"].isupper() and extra["label"] not in "AI" and (extra["or"] is not None or "," not in extra[0])


def _several(positions: list[int | None], end: int) -> Slot:
    if None in positions:
        return Slot("out_of_range", end=end)
    return Slot("chosen", frozenset(i for i in positions if i is not None), "letter", end=end)


def _joined(text: str, options: Options) -> Slot | None:
    """Letters written together, as in "ACD"."""
    letters = text.strip("()[]{}., ")
    found = [options.find_label(letter) for letter in letters]
    if len(letters) < 2 or not letters.isupper() or len(set(letters)) != len(letters) or None in found:
        return None
    return Slot("chosen", frozenset(i for i in found if i is not None), "letter", end=len(text))


def _label_behind(text: str, match: re.Match[str] | None, options: Options) -> Slot:
    """An option whose letter stands behind its text, as in "Paris (B)"."""
    if match is None or UNSURE.search(match["text"]):
        return _NONE
    position, named = options.find_label(match["label"]), options.find_text(match["text"])
    if position is None:
        return _NONE
    if named is not None and named != position:
        return Slot("contradiction", frozenset({position, named}), end=len(text))
    how = "letter" if named is None else "letter_and_text"
    return Slot("chosen", frozenset({position}), how, match["text"], match.end())


def _single(text: str, match: re.Match[str], end: int, context: Context) -> Slot:
    """One letter, and what follows it."""
    options, label, rest = context.options, match["label"], text[end:]
    position = options.find_label(label)
    beside = _beside(rest, label, is_closed=bool(match["close"]), is_announced=context.is_announced)
    if beside is None:
        beside = _text_after_blank(rest, label, position, options)
    if beside is None:
        return _NONE
    if position is None:
        return Slot("out_of_range", end=end) if options.is_closed else _NONE
    return _with_text(position, beside, end, options)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What stands beside a letter, and whether it is the letter's text (else a new sentence, or a reason)."""

    text: str
    is_label_text: bool = False


def _beside(rest: str, label: str, *, is_closed: bool, is_announced: bool) -> _Beside | None:
    """What stands beside a letter; None when this is no letter of an option but a word of a sentence."""
    is_article = label in "ai"
    if rest.lstrip().startswith(("?", "？")):
        return None
    if END.match(rest):
        return _Beside(rest.lstrip(" .").strip() if rest.lstrip().startswith(".") else "")
    if is_closed:
        return _Beside(rest.strip(" .:-"), is_label_text=True)
    delimiter = DELIMITER.match(rest)
    if delimiter is not None and not (is_article and delimiter[0].strip() in (",", "，")):
        return _Beside(rest[delimiter.end() :].strip(), is_label_text=delimiter[0].strip() not in (",", "，", "."))
    follows = CONNECTIVE if is_announced else REASON
    return _Beside("") if follows.match(rest) and not is_article else None


def _text_after_blank(rest: str, label: str, position: int | None, options: Options) -> _Beside | None:
    """The text in "B Paris", where it is known to be the option's."""
    if position is None or not options.texts or not label.isupper():
        return None
    segment = SEGMENT_END.split(rest, maxsplit=1)[0]
    return _Beside(rest.strip(), is_label_text=True) if options.find_text(segment) == position else None


def _with_text(position: int, beside: _Beside, end: int, options: Options) -> Slot:
    """A letter with its text; refused when the text is another option's."""
    text = beside.text
    segment = SEGMENT_END.split(text, maxsplit=1)[0].strip().strip("()[]")
    chosen, started = frozenset({position}), options.begins_with(text) if text else frozenset()
    named = {
        found for part in (text, text.partition("\n")[0], segment) if (found := options.find_text(part)) is not None
    }
    is_own = position in named or position in started
    others = named | (started if beside.is_label_text and len(segment) > 1 else frozenset())
    if others and not is_own:
        return Slot("contradiction", chosen | others, end=end)
    listed = {found for label in OTHER.findall(segment) if (found := options.find_label(label)) is not None}
    if listed - chosen:
        return Slot("hedged", chosen | listed, end=end)
    return Slot("chosen", chosen, "letter_and_text" if is_own else "letter", segment, end)
