"""Rows given in the config or from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.errors import DataError


class RowsSource:
    """A source over a list of rows.

    Args:
        rows: mappings of columns.

    Raises:
        DataError: there are no rows.

    Source: none; plain storage.
    """

    def __init__(self, *, rows: list[dict[str, Any]]) -> None:
        if not rows:
            raise DataError("source 'rows' was given an empty list; give at least one row")
        self._rows = rows

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Row `index`, from 0."""
        if not 0 <= index < len(self._rows):
            raise IndexError(f"row {index} of {len(self._rows)}")
        return self._rows[index]
