"""Marks on the fields of the run configuration: which kind of component stands there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

SCHEMA_MARK = "x-roll-kind"
"""Key in the JSON Schema of a field that holds a component: "kind" or "kind=default"."""


@dataclass(frozen=True, slots=True)
class OfKind:
    """Marks a field as a reference to a component.

    Args:
        kind: one of `contracts.KINDS`.
        default: component that is meant when a mapping names none.
    """

    kind: str
    default: str | None = None

    def fill(self, value: Any) -> Any:
        """Add the default's name to a mapping without `use`."""
        if self.default is not None and isinstance(value, Mapping) and "use" not in value:
            return {"use": self.default, **value}
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Fill the default's name in before validation."""
        return core_schema.no_info_before_validator_function(self.fill, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Mark the place, so that the component's own options can be described there."""
        return {**handler(schema), SCHEMA_MARK: self.kind if self.default is None else f"{self.kind}={self.default}"}
