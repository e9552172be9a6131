"""What is wrong with a task, as opposed to what is wrong with an answer."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_MAX_BITS = 4096


class TaskError(ValueError):
    """The task itself is broken: its tests, limits or language. No answer to it can be scored."""


def shown(value: object) -> str:
    """A value in a message: its `repr`, cut to 60 characters, or its type where it has none of a reasonable length."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        value = value[:100]
    try:
        return f"{value!r:.60}"
    except (ValueError, RecursionError):  # a huge integer inside of it, or too deep
        return f"a value of type {type(value).__name__}"


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message: which known names are meant, perhaps."""
    close = difflib.get_close_matches(shown(name).strip("'\""), list(known), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(one) for one in close)}?" if close else ""


def check_keys(mapping: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse keys that nothing reads.

    Raises:
        TaskError: a key is not among `known`; the message names the keys that are near.
    """
    for key in mapping:
        if key not in known:
            raise TaskError(f"{where}: unknown key {shown(key)}{nearest(key, known)} (known: {', '.join(known)})")
