"""References: a letter, an index, or a row as the common data sets carry it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from roll_verifier_choice.options import MAX_OPTIONS, Options, closed_options
from roll_verifier_choice.slot import Context, read_slot

CHOICE_KEYS = ("choices", "options", "endings")
ANSWER_KEYS = ("answer", "answerKey", "answer_key", "label", "gold", "answer_index", "text")


class BadReferenceError(Exception):
    """A reference that says no option; the message says why."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The right options, as positions."""

    right: frozenset[int]
    options: Options


def read_reference(
    reference: Any, info: Mapping[str, Any], *, index_base: int, num_options: int | None, multiple: bool
) -> Gold:
    """Read a reference.

    Args:
        reference: see `ChoiceVerifier.verify`.
        info: extra fields of the prompt; its choices are used where the reference brings none.
        index_base: what the first option's index is.
        num_options: number of options where no choices say it.
        multiple: whether several options may be right.

    Raises:
        BadReferenceError: it names no option, or more than one way to read it.
    """
    row = reference if isinstance(reference, Mapping) else {}
    options = _options(row) or _options(info) or _own_text(row)
    if options is None:
        options = Options() if num_options is None else Options(tuple(ascii_uppercase[:num_options]), is_closed=True)
    answer = _answer(row) if row else reference
    parts = list(answer) if isinstance(answer, list | tuple | set | frozenset) else [answer]
    right = frozenset[int]().union(*(_positions(part, options, index_base, multiple) for part in parts))
    if not right or (len(right) > 1 and not multiple):
        raise BadReferenceError(
            f"{len(right)} options are right in {reference!r:.100}; set multiple: true where several may be"
        )
    if not row and not options.texts and isinstance(reference, str):
        options = _text_beside(reference, right, options)
    return Gold(right, options)


# --- options ----------------------------------------------------------------------------------------------------------


def _options(row: Mapping[str, Any]) -> Options | None:
    for key in CHOICE_KEYS:
        if (choices := row.get(key)) is not None:
            return _read_choices(choices, key)
    return None


def _read_choices(choices: Any, key: str) -> Options:
    if isinstance(choices, Mapping) and {"label", "text"} <= choices.keys():  # ARC, CommonsenseQA, OpenBookQA
        return _labelled(choices["label"], choices["text"], key)
    if isinstance(choices, Mapping):  # {"A": "Paris", "B": "London"}
        return _labelled(list(choices), list(choices.values()), key)
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise BadReferenceError(f"'{key}' is no list of options: {choices!r:.100}")
    if choices and all(isinstance(c, Mapping) and {"label", "text"} <= c.keys() for c in choices):
        return _labelled([c["label"] for c in choices], [c["text"] for c in choices], key)
    texts = [_as_text(choice) for choice in choices]
    if not 1 < len(texts) <= MAX_OPTIONS:
        raise BadReferenceError(f"'{key}' has {len(texts)} options; 2 to {MAX_OPTIONS} can be judged")
    return closed_options(tuple(ascii_uppercase[: len(texts)]), tuple(texts))


def _labelled(labels: Any, texts: Any, key: str) -> Options:
    if not all(isinstance(part, Sequence) and not isinstance(part, str) for part in (labels, texts)):
        raise BadReferenceError(f"'{key}' must hold a list of labels and a list of texts")
    names = tuple(_as_text(label).strip().strip("().").upper() for label in labels)
    if len(names) != len(texts) or not 1 < len(set(names)) == len(names) <= MAX_OPTIONS:
        raise BadReferenceError(f"'{key}' needs 2 to {MAX_OPTIONS} different labels, a text each, got {names!r:.100}")
    if not (
        all(n.isascii() and n.isdigit() and len(n) < 3 for n in names)
        or all(len(n) == 1 and n.isalpha() for n in names)
    ):
        raise BadReferenceError(f"the labels in '{key}' must all be single letters or all numbers, got {names!r:.100}")
    return closed_options(names, tuple(_as_text(text) for text in texts))


def _own_text(row: Mapping[str, Any]) -> Options | None:
    """Options of a row that gives only the right one's label and text."""
    label, text = row.get("label"), row.get("text")
    if not (isinstance(label, str) and isinstance(text, str) and label.strip()):
        return None
    own = label.strip().strip("().").upper()
    if own not in ascii_uppercase or len(own) != 1:
        raise BadReferenceError(f"the label {label!r:.60} is no letter")
    return Options(texts=tuple(text if letter == own else None for letter in ascii_uppercase))


def _text_beside(reference: str, right: frozenset[int], options: Options) -> Options:
    """The options with the text that stands beside the letter in a reference such as "B) Paris"."""
    slot = read_slot(reference, Context(options))
    if len(right) > 1 or not slot.text:
        return options
    texts = tuple(slot.text if i in right else None for i in range(len(options.labels)))
    return Options(options.labels, texts, options.is_closed)


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(row: Mapping[str, Any]) -> Any:
    for key in ANSWER_KEYS:
        if row.get(key) is not None:
            return row[key]
    raise BadReferenceError(f"the reference has none of the fields {', '.join(ANSWER_KEYS)}")


def _positions(answer: Any, options: Options, index_base: int, multiple: bool) -> frozenset[int]:
    if isinstance(answer, bool) or not isinstance(answer, str | numbers.Integral):
        raise BadReferenceError(f"the answer is neither text nor an index: {answer!r:.100}")
    if not isinstance(answer, str):
        return frozenset({_by_index(int(answer), options, index_base)})
    readings = {frozenset({found}) for found in (options.find_text(answer),) if found is not None}
    slot = read_slot(answer, Context(options, multiple))
    if slot.kind == "chosen":
        readings.add(slot.chosen)
    elif not readings and options.is_closed and answer.strip().isascii() and answer.strip().isdigit():
        readings.add(frozenset({_by_index(int(answer), options, index_base)}))
    if len(readings) != 1:
        how = "several options" if readings else "none of the options"
        raise BadReferenceError(f"the answer {answer!r:.100} means {how}")
    return readings.pop()


def _by_index(index: int, options: Options, index_base: int) -> int:
    if not options.is_closed:
        raise BadReferenceError(f"the index {index} needs the options, or num_options")
    if not 0 <= index - index_base < len(options.labels):
        raise BadReferenceError(f"the index {index} is none of {len(options.labels)} options (index_base {index_base})")
    return index - index_base


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise BadReferenceError(f"an option or label is no text: {value!r:.100}")
    return str(value)
