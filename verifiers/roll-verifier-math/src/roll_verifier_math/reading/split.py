"""Lists: answers side by side, separated by commas, semicolons and words."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SEPARATOR = re.compile(
    r"(?P<open>\\\{|\\left\b|[(\[{])|(?P<close>\\\}|[)\]}])|(?P<skip>\\(?:begin|end|langle|rangle)(?![a-zA-Z]))"
    r"|(?P<joint>\s*[,;]?\s*(?:\\text\s*\{\s*(?:,\s*)?(?P<text>and|or)\s*\}|(?<![A-Za-z\\])(?P<word>and|or)(?![A-Za-z])|\\(?P<logic>land|lor)(?![a-z]))\s*)|(?P<mark>[,;])"
)


@dataclass(frozen=True, slots=True)
class Split:
    """The items of a list, and what joins them: "," unless a word does."""

    items: tuple[str, ...]
    joint: str = ","
    is_logical: bool = False
    """Whether the signs of logic join them."""


def split_items(text: str) -> Split:
    """Split at commas, semicolons, "and" and "or" outside all brackets."""
    items: list[str] = []
    joint, is_logical = ",", False
    depth = start = 0
    for match in _SEPARATOR.finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        elif match["skip"]:
            depth += 1 if match[0] in ("\\begin", "\\langle") else -1
        elif depth <= 0:
            items.append(text[start : match.start()].strip())
            start = match.end()
            if match["joint"]:
                joint = match["text"] or match["word"] or match["logic"][1:]
                is_logical = match["logic"] is not None
    items.append(text[start:].strip())
    return Split(tuple(items), joint, is_logical)
