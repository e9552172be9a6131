"""What is wrong with a task, as opposed to what is wrong with an answer."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any


class TaskError(ValueError):
    """The task itself is broken: its tests, limits or language. No answer to it can be scored."""


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message: which known names are meant, perhaps."""
    close = difflib.get_close_matches(str(name)[:100], list(known), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(one) for one in close)}?" if close else ""


def check_keys(mapping: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse keys that nothing reads.

    Raises:
        TaskError: a key is not among `known`; the message names the keys that are near.
    """
    for key in mapping:
        if key not in known:
            raise TaskError(f"{where}: unknown key {key!r:.60}{nearest(key, known)} (known: {', '.join(known)})")
