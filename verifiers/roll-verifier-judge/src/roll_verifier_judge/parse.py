"""From a judge's whole reply to the verdict it gave, or to the finding that it gave none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roll_verifier_judge import vocabulary
from roll_verifier_judge.anchors import last_verdict, unfenced
from roll_verifier_judge.scales import RubricScale, Scale, read_scale
from roll_verifier_judge.speech import is_plain_statement
from roll_verifier_judge.structured import read_structured
from roll_verifier_judge.text import clean_reply
from roll_verifier_judge.values import Found, Reader, Refused, opening_end, read_whole, reader_of, tail_problem

MAX_CHARS = 100_000
"""A longer reply is no verdict."""
_SENTENCE_END = re.compile(r"[.!?。！？\n](?!$)")
_IS = re.compile(rf"(?:\b(?:is|are|{vocabulary.SEPARATORS})\b\s*|{vocabulary.WIDE_SEPARATORS})", re.IGNORECASE)
_BEHIND_FIRST_WORD = re.compile(r"[*_`\"'”’)\]]*(?:\s*[.,;:!()\[。，；：！（、…—–]|\s*\n|\s*$|\s+-\s)")
_NUMERO = re.compile(r"[.:]?\s*\d")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply says: a value when `status` is "ok", else None and the reason why there is none."""

    status: Literal["ok", "invalid"]
    value: Any = None
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether there is a value."""
        return self.status == "ok"


def parse_reply(raw: str, scale: Mapping[str, Any] | Scale) -> Parsed:
    """Read the verdict out of a judge's reply.

    Thinking, template tokens and invisible characters are dropped; then JSON objects and tags are read, which must all
    agree; without any, the last verdict of the text that is announced as one counts. A missing, contradictory,
    inexact or out-of-range verdict is invalid: nothing is clamped, guessed or taken from an earlier place.

    Args:
        raw: the whole reply.
        scale: what was asked for, as data (`scales.read_scale`) or read already.

    Raises:
        ConfigError: `scale` is malformed.
    """
    scale = read_scale(scale)
    if len(raw) > MAX_CHARS:
        return Parsed("invalid", reason="too_long")
    text = clean_reply(raw)
    found = _find(text, scale) if text else Refused("no_verdict")
    if not isinstance(found, Refused):
        return Parsed("ok", found)
    is_refusal = found.reason == "no_verdict" and vocabulary.IS_REFUSAL.search(text)
    return Parsed("invalid", reason="refusal" if is_refusal else found.reason)


def _find(text: str, scale: Scale) -> Any:
    if isinstance(scale, RubricScale):
        structured = read_structured(text, scale, None)
        return structured.value or Refused("no_verdict")
    reader = reader_of(scale)
    structured = read_structured(text, scale, reader)
    anchor = last_verdict(structured.rest, reader, scale.key)
    if structured.value is not None:
        is_revised = (
            anchor is not None
            and anchor.start >= structured.end
            and not isinstance(anchor.value, Refused)
            and anchor.value != structured.value
        )
        return Refused("verdicts_differ") if is_revised else structured.value
    if anchor is not None:
        return anchor.value
    if structured.had_objects:
        return Refused("no_verdict")
    return _unannounced(unfenced(structured.rest).strip(), reader)


def _unannounced(text: str, reader: Reader) -> Any:
    """A value that is the whole reply, its first line, its first word, or the end of its only sentence."""
    value = read_whole(reader, text)
    if not isinstance(value, Refused):
        return value
    if isinstance(value, Refused) and reader.is_number and value.reason in ("out_of_range", "other_scale"):
        start = opening_end(text, 0)
        if not text[start:].strip("+-.,/%0123456789eE \t"):
            return value
    for attempt in (_first_line, _first_word, _only_sentence):
        value = attempt(text, reader)
        if value is not None:
            return value
    return Refused("no_verdict")


def _first_line(text: str, reader: Reader) -> Any:
    """A number alone on the first line, where no other line is a number."""
    first, _, rest = text.partition("\n")
    if not reader.is_number or not rest.strip():
        return None
    value = read_whole(reader, first)
    is_only = all(isinstance(read_whole(reader, line), Refused) for line in rest.splitlines())
    return None if isinstance(value, Refused) or not is_only else value


def _first_word(text: str, reader: Reader) -> Any:
    """A label before punctuation at the beginning, where no other line begins with another one."""
    first = _label_at_start(text, reader)
    if first is None or isinstance(first, Refused):
        return first
    others = [_label_at_start(line, reader) for line in text.splitlines()[1:] if line.strip()]
    return Refused("two_values") if any(one not in (None, first) for one in others) else first


def _label_at_start(text: str, reader: Reader) -> Any:
    if reader.is_number:
        return None
    found = reader.read_at(text, opening_end(text, 0))
    if isinstance(found, Refused) or not _BEHIND_FIRST_WORD.match(text, found.end):
        return None
    if _NUMERO.match(text, found.end):
        return None
    problem = tail_problem(reader, text, found, is_new_line=False)
    return Refused(problem) if problem else found.value


def _only_sentence(text: str, reader: Reader) -> Any:
    """The label at the end of a reply of one sentence that says "… is LABEL"."""
    if reader.is_number or _SENTENCE_END.search(text):
        return None
    for match in _IS.finditer(text):
        found = reader.read_at(text, opening_end(text, match.end()))
        is_end = isinstance(found, Found) and not text[found.end :].strip(".!。*_`\"'”’ 的")
        if isinstance(found, Found) and is_end and is_plain_statement(text[: match.start()]):
            return found.value
    return None
