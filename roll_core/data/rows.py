"""Reads what a row of data says: its question, reference, id and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.config.schema import DataConfig
from roll_core.data.template import Template
from roll_core.errors import DataError, near_match
from roll_core.types import Message

Content = str | tuple[Message, ...]
"""A filled template, or the messages a row brings along."""


class RowError(DataError):
    """One row cannot become a prompt."""


class RowReader:
    """Picks the columns of rows as a domain's data config names them.

    Args:
        data: the config.
        place: its dotted path, for errors.

    Raises:
        DataError: the template is malformed.
    """

    def __init__(self, data: DataConfig, place: str) -> None:
        self._data = data
        self._place = place
        self._template = Template.parse(data.template, f"{place}.template")

    def content(self, row: Mapping[str, Any], index: int) -> Content:
        """What the row asks: the filled template, or the messages its prompt column holds.

        Raises:
            RowError: a column is missing, empty, or of a type that cannot be used.
        """
        prompt_column = self._data.columns.prompt
        values: dict[str, Any] = {}
        for name in sorted(self._template.fields):
            column, option = (prompt_column, "columns.prompt") if name == "prompt" else (name, "template")
            values[name] = self._value(row, column, option, index)
            if values[name] is None or values[name] == "":
                raise RowError(f"{self._place}: column '{column}' of row {index} is empty")
        prompt = values.get("prompt", "")
        if isinstance(prompt, list | tuple):
            return self._messages(prompt, index)
        if not isinstance(prompt, str):
            raise RowError(
                f"{self._place}: column '{prompt_column}' of row {index} must hold text or a list of messages, "
                f"not {type(prompt).__name__}"
            )
        try:
            return self._template.fill(values)
        except (ValueError, TypeError) as error:
            text = self._template.text
            raise RowError(f"{self._place}.template: row {index} does not fit {text!r}: {error}") from error

    def reference(self, row: Mapping[str, Any], index: int) -> Any:
        """What the verifier compares with; None where the config names no column.

        Raises:
            RowError: the column is missing or empty.
        """
        column = self._data.columns.reference
        if column is None:
            return None
        reference = self._value(row, column, "columns.reference", index)
        if reference is None:
            raise RowError(
                f"{self._place}: column '{column}' of row {index} is empty; set 'columns: {{reference: null}}' where "
                "the verifier needs no reference"
            )
        return reference

    def id(self, row: Mapping[str, Any], index: int) -> str | None:
        """The row's own name; None where the config names no column.

        Raises:
            RowError: the column is missing or empty.
        """
        column = self._data.columns.id
        if column is None:
            return None
        value = self._value(row, column, "columns.id", index)
        if value is None:
            raise RowError(f"{self._place}: column '{column}' of row {index} is empty; an id is needed")
        return str(value)

    def rest(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """All columns but prompt, reference and id."""
        columns = self._data.columns
        own = {columns.prompt, columns.reference, columns.id}
        return {name: value for name, value in row.items() if name not in own}

    def _value(self, row: Mapping[str, Any], column: str, option: str, index: int) -> Any:
        if column not in row:
            raise RowError(
                f"{self._place}: row {index} has no column '{column}' (named by {option})"
                f"{near_match(column, row) or ';'} columns: {', '.join(row) or 'none'}"
            )
        return row[column]

    def _messages(self, messages: list[Any] | tuple[Any, ...], index: int) -> tuple[Message, ...]:
        column = self._data.columns.prompt
        if not self._data.chat or self._template.text != "{prompt}":
            raise RowError(
                f"{self._place}: column '{column}' of row {index} holds messages, which need 'chat: true' and no "
                "template"
            )
        if not messages or not all(isinstance(m, Mapping) and isinstance(m.get("role"), str) for m in messages):
            raise RowError(
                f"{self._place}: column '{column}' of row {index} must hold messages with a 'role' and a 'content'"
            )
        return tuple(dict(m) for m in messages)
