"""Readers for text files. Values stay exactly what the file says; the first bad line is named.

JSON is read here and not through `datasets`, which would give all rows one schema and fill every key that only some
references have with null.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.errors import DataError

_SHOWN_CHARACTERS = 80


class JsonLines(Sequence[Mapping[str, Any]]):
    """The rows of a JSON lines file. Every line is checked once; only offsets are kept, lines are read when asked for.

    Raises:
        DataError: a line is not a JSON object.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = array("Q")
        self._numbers = array("Q")
        offset = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    _parse_line(line, path, number)
                    self._offsets.append(offset)
                    self._numbers.append(number)
                offset += len(line)

    def __len__(self) -> int:
        """Number of rows; blank lines are none."""
        return len(self._offsets)

    def __getitem__(self, index: Any) -> Any:
        """Row `index`."""
        with self._path.open("rb") as file:
            file.seek(self._offsets[index])
            return _parse_line(file.readline(), self._path, self._numbers[index])


def read_json(path: Path) -> Sequence[Mapping[str, Any]]:
    """Rows of a `.json` file: a list of objects, or one object a line.

    Raises:
        DataError: malformed.
    """
    with path.open("rb") as file:
        start = file.read(_SHOWN_CHARACTERS).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"["):
        return JsonLines(path)
    try:
        rows = json.loads(path.read_bytes())
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise DataError(f"data file {path} is not valid JSON: {error}") from error
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"data file {path}: entry {index} is {type(row).__name__}, every entry must be an object")
    return list(rows)


def read_csv(path: Path) -> Sequence[Mapping[str, Any]]:
    """Rows of a `.csv` file with a header line; every value is text.

    Raises:
        DataError: malformed, or a row has another number of fields than the header.
    """
    rows: list[Mapping[str, Any]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise DataError(
                        f"data file {path}, line {reader.line_num}: {len(fields)} fields, the header has {len(header)}"
                    )
                rows.append(dict(zip(header, fields, strict=True)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"data file {path}, line {reader.line_num + 1}: not valid CSV: {error}") from error
    return rows


READERS: dict[str, Callable[[Path], Sequence[Mapping[str, Any]]]] = {
    "jsonl": JsonLines,
    "json": read_json,
    "csv": read_csv,
}


def _parse_line(line: bytes, path: Path, number: int) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        shown = line.decode("utf-8", "replace").strip()
        shown = shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."
        raise DataError(f"data file {path}, line {number}: not valid JSON ({error}): {shown}") from error
    if not isinstance(row, dict):
        raise DataError(f"data file {path}, line {number}: {type(row).__name__}, every line must hold one JSON object")
    return row
