"""What every section of the configuration is made of: strict models, references to components, bounded numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]


class Strict(BaseModel):
    """Unknown keys are errors; the text under a field documents it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )


class ComponentRef(Strict):
    """A component by name with its options, `{use: grpo, eps: 1e-4}`; a bare name is short for `{use: name}`.

    From Python, `use` may be the object or function itself. Where the field has a default component, a mapping without
    `use` gives options to that one.
    """

    model_config = ConfigDict(extra="allow")

    use: Any
    """Name of the component (`owner/name` when two plugins offer it), or the object itself."""

    @classmethod
    def long_form(cls, value: Any) -> Any:
        """Write the short form of a reference as a mapping; a mapping (or null) comes back as it is."""
        return value if value is None or isinstance(value, Mapping) else {"use": value}

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if isinstance(value, ComponentRef):
            return {name: getattr(value, name) for name in value.model_fields_set}
        return cls.long_form(value)

    @field_validator("use")
    @classmethod
    def _use_is_component(cls, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | bytes | list | tuple | dict | set):
            raise ValueError("must be the name of a component, or from Python the object itself")
        if isinstance(value, str) and not value.strip():
            raise ValueError("names no component")
        return value

    @property
    def label(self) -> str:
        """What to call the component: its name, or that of the object given in its place."""
        return self.use if isinstance(self.use, str) else getattr(self.use, "__name__", type(self.use).__name__)

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the declared fields: the component's own options."""
        return dict(self.model_extra or {})
