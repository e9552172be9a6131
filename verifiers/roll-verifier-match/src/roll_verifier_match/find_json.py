"""JSON in a response, read strictly: no key twice, no NaN, nothing broken off."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from roll_core.types import without_thinking

Find = Literal["strict", "fenced", "first"]

MAX_ATTEMPTS = 200
"""Opening brackets tried before the search for the first object ends."""
MAX_DIGITS = 400
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[ \t]*$", re.MULTILINE)


class NoJsonError(Exception):
    """The text holds no JSON that can be used; `detail` is a word for it."""

    def __init__(self, detail: str, reason: str) -> None:
        super().__init__(reason)
        self.detail = detail


def find_json(response: str, how: Find, *, opening: str, max_chars: int) -> Any:
    """The JSON value of a response.

    Args:
        response: what the policy wrote; thinking does not count.
        how: "strict": all of it; "fenced": the content of the last code fence; "first": the first object (or array).
        opening: "{" or "[", what the first value begins with.
        max_chars: longest response outside thinking.

    Raises:
        NoJsonError: there is none ("no_json"), it is broken ("broken_json", "duplicate_key", "bad_number"), or beyond
            the limits ("too_long", "too_deep").
    """
    text = without_thinking(response)
    if len(text) > max_chars:
        raise NoJsonError("too_long", f"{len(text)} characters, at most {max_chars}")
    if not text.strip():
        raise NoJsonError("no_json", "the response is empty")
    try:
        if how == "first":
            return _first(text, opening)
        return _whole(_fenced(text) if how == "fenced" else text)
    except RecursionError:
        raise NoJsonError("too_deep", "the JSON is nested too deep") from None


def read_json(text: str) -> Any:
    """Read a text that is JSON as a whole, as strictly.

    Raises:
        NoJsonError: it is not.
    """
    return _whole(text)


def check_size(value: Any, *, max_depth: int, max_nodes: int) -> None:
    """Refuse values that are nested too deep or have too many parts.

    Raises:
        NoJsonError: a limit is exceeded ("too_deep", "too_large").
    """
    nodes, level, depth = 0, [value], 0
    while level:
        nodes += len(level)
        if nodes > max_nodes:
            raise NoJsonError("too_large", f"the JSON has more than {max_nodes} values")
        if depth > max_depth:
            raise NoJsonError("too_deep", f"the JSON is nested deeper than {max_depth}")
        level = [child for node in level for child in _children(node)]
        depth += 1


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded_int
    )


def _whole(text: str) -> Any:
    try:
        return _decoder().decode(text)
    except json.JSONDecodeError as error:
        raise NoJsonError("broken_json", f"no JSON: {error}") from error


def _fenced(text: str) -> str:
    fences = list(_FENCE.finditer(text))
    blocks = [(opened, closed) for opened, closed in zip(fences[::2], fences[1::2], strict=False) if not closed[1]]
    blocks = [(opened, closed) for opened, closed in blocks if opened[1].lower() in ("", "json")]
    if not blocks or len(fences) % 2:
        raise NoJsonError("no_json", "the response has no closed code fence for JSON")
    opened, closed = blocks[-1]
    return text[opened.end() : closed.start()]


def _first(text: str, opening: str) -> Any:
    decoder, position = _decoder(), -1
    failure = NoJsonError("no_json", f"the response holds no '{opening}'")
    for _ in range(MAX_ATTEMPTS):
        position = text.find(opening, position + 1)
        if position < 0:
            break
        try:
            return decoder.raw_decode(text, position)[0]
        except json.JSONDecodeError as error:
            failure = NoJsonError("broken_json", f"no complete JSON: {error.msg} at character {error.pos}")
            if text[position + 1 : position + 200].lstrip().startswith('"'):
                break  # it began as JSON: a value that is broken, not a bracket of the prose
    raise failure


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add gives None
        raise NoJsonError("duplicate_key", f"key {twice!r:.60} occurs twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise NoJsonError("bad_number", f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise NoJsonError("bad_number", "a number is out of range")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NoJsonError("bad_number", f"a number has more than {MAX_DIGITS} digits")
    return int(digits)
