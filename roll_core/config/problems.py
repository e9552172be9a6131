"""What is wrong with a configuration: collected, placed, and raised as one error."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from roll_core.config.shape import Place, dotted, known_keys, shape_at
from roll_core.errors import ConfigError, near_match

_UNKNOWN_KEY = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_MISSING_KEY = frozenset({"missing", "missing_argument"})
_NEEDS_SECTION = frozenset({"model_type", "model_attributes_type", "dataclass_type", "dict_type"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Args:
        place: where in the configuration.
        message: what is wrong and what to write instead.
    """

    place: Place
    message: str


def unknown_key(place: Place, known: Iterable[str]) -> Problem:
    """The problem of a key that nothing reads.

    Args:
        place: ends with the unknown key.
        known: keys that could stand there.
    """
    key, names = str(place[-1]), sorted(set(known))
    hint = near_match(key, names) or ";"
    return Problem(place, f"unknown key '{key}'{hint} known: {', '.join(names) or 'none'}")


def report(problems: Iterable[Problem], origin: Callable[[Place], str]) -> ConfigError:
    """One error out of all problems.

    Args:
        problems: at least one.
        origin: says where the value at a place was written ("run.yaml:12"), or "".
    """
    lines = []
    for problem in dict.fromkeys(problems):
        source = origin(problem.place)
        where = f"{dotted(problem.place)} ({source})" if source and problem.place else dotted(problem.place) or source
        lines.append(f"{where}: {problem.message}" if where else problem.message)
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError(f"{len(lines)} problems in the configuration\n  " + "\n  ".join(lines))


def problems_of(
    error: ValidationError,
    prefix: Place = (),
    known: Callable[[Place], Iterable[str]] = known_keys,
    within: Callable[[Place], bool] | None = None,
) -> list[Problem]:
    """Translate pydantic's findings.

    Args:
        error: what pydantic raised.
        prefix: place of the validated value in the configuration.
        known: keys that could stand at a place.
        within: whether something may stand at a place; drops what pydantic adds for the arms of a union.
    """
    within = within or (lambda place: shape_at(place) is not None)
    found: dict[tuple[Place, bool], list[Problem]] = {}
    for finding in error.errors(include_url=False):
        is_key = finding["type"] in _UNKNOWN_KEY | _MISSING_KEY
        place = _place(prefix, finding["loc"], within, keep_last=is_key)
        if finding["type"] in _UNKNOWN_KEY:
            problem = unknown_key(place, known(place[:-1]))
        elif finding["type"] in _MISSING_KEY:
            problem = Problem(place[:-1], f"key '{place[-1]}' is missing")
        else:
            problem = Problem(place, _message(finding))
        found.setdefault((place, is_key), []).append(problem)
    return [
        Problem(problems[0].place, " or ".join(dict.fromkeys(problem.message for problem in problems)))
        for problems in found.values()
    ]


def _place(prefix: Place, location: Place, within: Callable[[Place], bool], *, keep_last: bool) -> Place:
    place = prefix
    for index, key in enumerate(location):
        if within((*place, key)) or (keep_last and index == len(location) - 1):
            place = (*place, key)
    return place


def _message(finding: Any) -> str:
    value, kind, text = finding["input"], finding["type"], str(finding["msg"])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", finding["ctx"]["expected"])
        return f"{value!r} is not one of {', '.join(choices)}{near_match(str(value), choices)}"
    if kind in _NEEDS_SECTION:
        return f"needs a mapping of keys, got {_short(value)}"
    if kind in {"tuple_type", "list_type"}:
        return f"needs a list, got {_short(value)}"
    if kind == "value_error":
        return f"{finding['ctx']['error']} (got {_short(value)})"
    return f"{text[0].lower()}{text[1:]} (got {_short(value)})"


def _short(value: Any) -> str:
    return "nothing" if value is None else reprlib.repr(value)
