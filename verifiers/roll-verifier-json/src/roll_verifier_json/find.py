"""The first JSON object of a text, read strictly."""

from __future__ import annotations

import json
from typing import Any

MAX_CHARS = 200_000
MAX_ATTEMPTS = 200
"""Opening braces tried before the search ends."""


class NoObjectError(Exception):
    """The text holds no JSON object that can be used; the message says why."""


def find_object(text: str, *, strict: bool) -> dict[str, Any]:
    """The first JSON object in `text`, or all of it under `strict`.

    An object that is broken off, or has a key twice, NaN or Infinity, is not valid here, however lenient other readers
    are; the search does not go on inside or behind it. Braces of the prose (`{like this}`) are passed over.

    Raises:
        NoObjectError: there is none.
    """
    if len(text) > MAX_CHARS:
        raise NoObjectError(f"the text has {len(text)} characters, more than {MAX_CHARS}")
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded_int
    )
    try:
        return _whole(decoder, text) if strict else _first(decoder, text)
    except RecursionError:
        raise NoObjectError("the JSON is nested too deep") from None


def _whole(decoder: json.JSONDecoder, text: str) -> dict[str, Any]:
    try:
        value = decoder.decode(text)
    except ValueError as error:
        raise NoObjectError(f"the response is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NoObjectError(f"the response is a JSON {type(value).__name__}, not an object")
    return value


def _first(decoder: json.JSONDecoder, text: str) -> dict[str, Any]:
    position = -1
    failure = "the response holds no '{'"
    for _ in range(MAX_ATTEMPTS):
        position = text.find("{", position + 1)
        if position < 0:
            break
        try:
            value, _end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            failure = f"no complete JSON object: {error.msg} at character {error.pos}"
            if text[position + 1 : position + 200].lstrip().startswith('"'):
                break  # it began as an object: one that is broken, not a brace of the prose
            continue
        if isinstance(value, dict):
            return value
    raise NoObjectError(failure)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise NoObjectError(f"key {twice!r:.60} occurs twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise NoObjectError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise NoObjectError("a number is out of range")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > 400:
        raise NoObjectError("a number has too many digits")
    return int(digits)
