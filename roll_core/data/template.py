"""The `template` of a domain's data: text with named columns of a row in braces."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.errors import DataError


@dataclass(frozen=True, slots=True)
class Template:
    """A checked template. Build it with `parse`."""

    text: str
    fields: frozenset[str]
    """Names in braces."""

    @classmethod
    def parse(cls, text: str, place: str) -> Template:
        """Check a template.

        Args:
            text: plain column names in braces; literal braces are doubled.
            place: where it was written, for the error.

        Raises:
            DataError: braces do not match, or hold more than a name and a format.
        """
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise DataError(f"{place}: {error} in {text!r}; write {{{{ and }}}} for literal braces") from error
        fields: set[str] = set()
        for _, name, spec, _ in parsed:
            if name is None:
                continue
            if not name.isidentifier() or "{" in (spec or ""):
                raise DataError(
                    f"{place}: '{{{name}}}' in {text!r} is not the name of a column; write {{{{ and }}}} for "
                    "literal braces"
                )
            fields.add(name)
        if not fields:
            raise DataError(f"{place}: {text!r} names no column, so every prompt would be the same; write {{prompt}}")
        return cls(text, frozenset(fields))

    def fill(self, values: Mapping[str, Any]) -> str:
        """Put the values of a row in.

        Raises:
            ValueError: a value does not fit its format.
        """
        return self.text.format_map(values)
