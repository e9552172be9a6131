"""Verdicts in a reply's JSON objects and tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roll_verifier_judge.scales import RubricScale, Scale
from roll_verifier_judge.speech import is_foreign
from roll_verifier_judge.text import fold
from roll_verifier_judge.values import LabelReader, NumberReader, Reader, Refused, read_whole
from roll_verifier_judge.vocabulary import LABEL_TAGS, MEMBERS, TAGS

MAX_OBJECTS = 200
"""More in one reply are no verdict."""
MAX_BRACES = 1_000
"""Opening braces tried before the search for objects ends."""
_STARTS_LIKE_AN_OBJECT = re.compile(r"\{\s*(?:[\"'}]|\w+\s*:)")
_MAX_REPAIR = 20_000
_BLANK = "\ufffc"
_TWO = object()
"""Value of a key that occurs twice with different values."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A JSON object of a text; `value` is None where it cannot be read."""

    start: int
    end: int
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Structured:
    """What the structured parts of a reply say."""

    value: Any
    """The verdict, or `Refused`; None when there is no structured verdict."""
    end: int
    """Where the last structured verdict ends."""
    rest: str
    """The text with every object and tag blanked out, positions kept."""
    had_objects: bool


def read_structured(text: str, scale: Scale, reader: NumberReader | LabelReader | None) -> Structured:
    """Read the verdict out of JSON objects, wherever they stand, and tags such as `<score>`.

    All of them must say the same. An object that cannot be parsed (an echoed format, a broken-off reply) says nothing,
    nor does one that is reported ("the response contains {…}"), and nothing in them is read as text.

    Args:
        text: a cleaned reply.
        scale: what was asked for.
        reader: of the scale's single value; None for rubrics.
    """
    pieces = list(_objects(text))
    if len(pieces) > MAX_OBJECTS:
        return Structured(Refused("too_many_objects"), len(text), "", had_objects=True)
    verdicts: list[tuple[Any, int]] = []
    rest = text
    for piece in pieces:
        rest = _blanked(rest, piece.start, piece.end)
        if piece.value is None or is_foreign(text, piece.start):
            continue
        found = _verdict_in(piece.value, scale, reader)
        if found is not None:
            verdicts.append((found, piece.end))
    for start, end, found in _tags(rest, scale, reader):
        if not is_foreign(text, start):
            verdicts.append((found, end))
        rest = _blanked(rest, start, end)
    last = max((end for _, end in verdicts), default=0)
    had_objects = any(piece.value is not None for piece in pieces)
    return Structured(_agreed([found for found, _ in verdicts]), last, rest, had_objects)


def _agreed(verdicts: list[Any]) -> Any:
    if not verdicts:
        return None
    if any(_differs(one, verdicts[0]) for one in verdicts[1:]):
        return Refused("verdicts_differ")
    return verdicts[0]


def _differs(one: Any, other: Any) -> bool:
    return isinstance(one, Refused) is not isinstance(other, Refused) or one != other


# --- objects ----------------------------------------------------------------------------------------------------------


def _objects(text: str) -> Iterator[Piece]:
    decoder = json.JSONDecoder(object_pairs_hook=_pairs, strict=False)
    position = 0
    for _ in range(MAX_BRACES):
        position = text.find("{", position)
        if position < 0:
            return
        piece = _object_at(decoder, text, position)
        if piece is None:
            position += 1
            continue
        yield piece
        position = piece.end


def _object_at(decoder: json.JSONDecoder, text: str, start: int) -> Piece | None:
    """The object at a brace; None where the brace is one of the prose."""
    try:
        value, end = decoder.raw_decode(text, start)
        return Piece(start, end, value)
    except json.JSONDecodeError as error:
        broken_at = error.pos
        is_cut_off = error.msg.startswith("Unterminated")
    except (RecursionError, ValueError):  # nested too deep; a number of more digits than Python reads
        return Piece(start, len(text), None)
    if not _STARTS_LIKE_AN_OBJECT.match(text, start) or text[start - 1 : start].isalpha():
        return None
    close = _closing_brace(text, start)
    if close is not None:
        return Piece(start, close, _repaired(decoder, text[start:close]))
    return Piece(start, len(text) if is_cut_off or broken_at >= len(text) else max(broken_at, start + 1), None)


def _closing_brace(text: str, start: int) -> int | None:
    depth = 0
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return None


def _repaired(decoder: json.JSONDecoder, text: str) -> Mapping[str, Any] | None:
    """An object whose only faults are commas before a closing bracket, or single quotes throughout."""
    if len(text) > _MAX_REPAIR:
        return None
    candidate = re.sub(r",(\s*[}\]])", r"\1", text)
    if '"' not in candidate:
        candidate = candidate.replace("'", '"')
    try:
        value = decoder.decode(candidate)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        result[key] = _TWO if key in result and _differs(result[key], value) else value
    return result


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _verdict_in(value: Mapping[str, Any], scale: Scale, reader: NumberReader | LabelReader | None) -> Any:
    """The verdict of an object, `Refused` when it is unusable, None when the object holds none."""
    if isinstance(scale, RubricScale):
        return _rubric(value["verdicts"], scale) if "verdicts" in value else None
    if reader is None:
        return None
    names = {fold(scale.key)} if scale.key is not None else MEMBERS
    found = [member for name, member in value.items() if fold(name) in names]
    if not found:
        return None
    if any(member is _TWO for member in found):
        return Refused("two_values")
    return _agreed([reader.of_json(member) for member in found])


def _rubric(entries: Any, scale: RubricScale) -> Any:
    if not isinstance(entries, list):
        return Refused("no_verdict")
    names = {fold(name): name for name in scale.criteria}
    result: dict[str, Any] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            return Refused("malformed")
        name = names.get(fold(entry["name"]))
        if name is None:
            continue
        reader = LabelReader([(str(verdict), verdict) for verdict in scale.criteria[name]])
        verdict = reader.of_json(entry.get("verdict"))
        if isinstance(verdict, Refused):
            return verdict
        if name in result and result[name] != verdict:
            return Refused("two_values")
        result[name] = verdict
    missing = [name for name in scale.criteria if name not in result]
    return Refused("missing_criterion") if missing else {name: result[name] for name in scale.criteria}


# --- tags -------------------------------------------------------------------------------------------------------------


def _tags(text: str, scale: Scale, reader: Reader | None) -> Iterator[tuple[int, int, Any]]:
    """Tags that hold a verdict; the first name of the list that occurs counts alone."""
    if isinstance(scale, RubricScale) or reader is None:
        return
    own = [re.escape(scale.key)] if scale.key is not None else []
    for name in [*own, *TAGS, *(() if reader.is_number else LABEL_TAGS)]:
        pattern = re.compile(rf"<\s*({name})\s*>([^<>]{{0,200}})<\s*/\s*\1\s*>", re.IGNORECASE)
        found = list(pattern.finditer(text))
        for match in found:
            yield match.start(), match.end(), read_whole(reader, match[2].strip())
        if found:
            return


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + _BLANK * (end - start) + text[end:]
