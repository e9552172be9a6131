"""Checks of `contracts.Source`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    for index, row in _rows(source):
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
    for (index, row), *others in zip(_rows(first), _rows(first), _rows(second), strict=True):
        if any(repr(row) != repr(other) for _, other in others):
            raise CheckFailed(f"row {index} differs from one reading to the next: {row} and {others}")


def _some(count: int) -> list[int]:
    return sorted({*range(min(count, _LOOKED_AT)), *range(max(count - _LOOKED_AT, 0), count)})


def _rows(source: Any) -> Iterator[tuple[int, Any]]:
    """The rows that are there; that some are not is the finding of another check."""
    for index in _some(len(source)):
        with suppress(IndexError):
            yield index, source[index]
