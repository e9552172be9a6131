"""Text to a tree, whatever the text is: words, quantities, lists with words between them, formulas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from roll_verifier_math.bounds import RefusedError, TooCostlyError, check_text
from roll_verifier_math.nodes import App, Listing, Node, Num, Quantity, Words, rebuild, walk
from roll_verifier_math.normalise import normalise
from roll_verifier_math.parse import parse
from roll_verifier_math.units import split_unit
from roll_verifier_math.words import as_words, number_in_words

_JOINTS = re.compile(r"\s*(?:\\text\s*\{\s*)?\b(and|or)\b(?:\s*\})?\s*")


_BASED = re.compile(r"(?:\\text\s*\{)?\s*([0-9A-Fa-f]{1,60})\s*\}?\s*_\s*\{?(\d{1,3})\}?")
_ANGLE = re.compile(r"(?:sin|cos|tan|cot|sec|csc|cis)(?![a-z])")
"""Functions whose argument may carry a degree sign, which is then no unit of the whole."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer: its normalised text and, where it could be read, its tree; otherwise why not."""

    text: str
    node: Node | None
    refusal: str = ""
    is_costly: bool = False


def read(text: str) -> Reading:
    """Read one answer. Never raises."""
    try:
        check_text(text)
        normal = normalise(text)
    except TooCostlyError as error:
        return Reading(text.strip(), None, str(error), is_costly=True)
    try:
        return Reading(normal, _expand_signs(_read(normal)))
    except (TooCostlyError, RecursionError) as error:
        return Reading(normal, None, str(error), is_costly=True)
    except RefusedError as error:
        return Reading(normal, None, str(error))


def _read(text: str) -> Node:
    bare = re.sub(r"^\\text\s*\{([^{}]*)\}$", r"\1", text).strip()
    if (number := number_in_words(bare)) is not None:
        return Num(number)
    if (words := as_words(text)) is not None:
        return Words(words)
    inner = re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)
    if inner:
        text = normalise(inner[1])
    if based := _BASED.fullmatch(text):
        return App("base", (Words(based[1].upper()), Num(Fraction(based[2]))))
    value, unit = (text, None) if _ANGLE.search(text) else split_unit(text)
    try:
        node = parse(value)
    except TooCostlyError:
        raise
    except RefusedError:
        parts = _JOINTS.split(text)
        if len(parts) < 3 or not all(parts[::2]):
            raise
        return Listing(tuple(_read(part) for part in parts[::2]), parts[1])
    return node if unit is None else Quantity(node, unit)


def _expand_signs(node: Node) -> Node:
    r"""A tree with `\pm` as the list of its two values; all signs of one tree go together."""
    if not any(isinstance(n, App) and n.op in ("pm", "mp") for n in walk(node)):
        return node
    return Listing((_signed(node, "pm"), _signed(node, "mp")), "or")


def _signed(node: Node, plus: str) -> Node:
    if isinstance(node, App) and node.op in ("pm", "mp"):
        inner = _signed(node.args[0], plus)
        return inner if node.op == plus else App("neg", (inner,))
    return rebuild(node, lambda child: _signed(child, plus))
