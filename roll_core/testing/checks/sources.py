"""Checks of `contracts.Source`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.testing.kit import CheckFailed, Subject, check

_LOOKED_AT = 50


@check("sources")
def has_as_many_rows_as_it_says(subject: Subject) -> None:
    """Every index below the length gives a row, and there is at least one."""
    source = subject.build()
    count = len(source)
    if count < 1:
        raise CheckFailed("it has no rows: give cases with options that lead to some")
    for index in _some(count):
        try:
            source[index]
        except IndexError as error:
            raise CheckFailed(f"len() says {count}, but row {index} raises IndexError") from error


@check("sources")
def gives_mappings(subject: Subject) -> None:
    """A row is a mapping from column names to values."""
    source = subject.build()
    for index in _some(len(source)):
        row = source[index]
        if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row) or not row:
            raise CheckFailed(f"row {index} is {row!r}: return a non-empty mapping with string keys")


@check("sources")
def refuses_wrong_indices(subject: Subject) -> None:
    """A negative index, and one past the end, raise IndexError."""
    source = subject.build()
    for index in (-1, -len(source) - 1, len(source), len(source) + 1000):
        try:
            row = source[index]
        except IndexError:
            continue
        raise CheckFailed(f"index {index} of {len(source)} gave {row!r}: raise IndexError")


@check("sources")
def is_deterministic(subject: Subject) -> None:
    """The same row is the same, twice and from a second instance."""
    first, second = subject.build(), subject.build()
    if len(first) != len(second):
        raise CheckFailed(f"two instances have {len(first)} and {len(second)} rows")
    for index in _some(len(first)):
        rows = [dict(source[index]) for source in (first, first, second)]
        if not (repr(rows[0]) == repr(rows[1]) == repr(rows[2])):
            raise CheckFailed(f"row {index} differs from one reading to the next: {rows}")


def _some(count: int) -> Any:
    return sorted({*range(min(count, _LOOKED_AT)), *range(max(count - _LOOKED_AT, 0), count)})
