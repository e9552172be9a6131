"""What may stand where: the run configuration's types, walked by key.

Overrides, merging, error messages and the listing of components all ask the same two questions: which keys are known
at this place, and is this place a component.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from roll_core.config.marks import OfKind
from roll_core.config.schema import ComponentPatch, ComponentRef, RunConfig, Strict
from roll_core.contracts import LoraSettings, OptimSettings

Key = str | int
Place = tuple[Key, ...]
Form = Literal["section", "table", "list", "free", "value"]


def dotted(place: Place) -> str:
    """Write a place the way an override does: `domains.math.rewards.1.weight`."""
    return ".".join(str(key) for key in place)


@dataclass(frozen=True, slots=True)
class Shape:
    """The type at one place.

    `form`: "section" (declared keys), "table" (any keys, one type of value), "list", "free" (anything: a component's
    own options) or "value" (a leaf).
    """

    form: Form
    hint: Any
    of_kind: OfKind | None = None
    default: Any = PydanticUndefined

    @property
    def component(self) -> type[ComponentRef] | None:
        """The reference type when a component stands here."""
        return self.hint if isinstance(self.hint, type) and issubclass(self.hint, ComponentRef) else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared keys of a section, in written order."""
        return tuple(_fields(self.hint)) if self.form == "section" else ()

    def child(self, key: Key) -> Shape | None:
        """The shape under `key`; None where nothing can stand."""
        if self.form == "free":
            return FREE
        if self.form == "table":
            return shape_of(get_args(self.hint)[1])
        if self.form == "list":
            return shape_of(get_args(self.hint)[0]) if _is_index(key) else None
        if self.form == "section":
            field = _fields(self.hint).get(str(key))
            return field if field is not None or self.component is None else FREE
        return None


FREE = Shape("free", Any)


def shape_of(hint: Any, default: Any = PydanticUndefined) -> Shape:
    """The shape of a type annotation (`Annotated` marks included)."""
    of_kind: OfKind | None = None
    while True:
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            of_kind = next((mark for mark in marks if isinstance(mark, OfKind)), of_kind)
        elif get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
            others = [arm for arm in get_args(hint) if arm is not type(None)]
            if len(others) > 1:
                return Shape("value", hint, of_kind, default)
            hint = others[0]
        else:
            return Shape(_form(hint), hint, of_kind, default)


ROOT = Shape("section", RunConfig)


def shape_at(place: Place) -> Shape | None:
    """The shape at a place of the run configuration; None where nothing can stand."""
    shape: Shape | None = ROOT
    for key in place:
        shape = shape.child(key) if shape is not None else None
    return shape


def known_keys(place: Place) -> tuple[str, ...]:
    """The declared keys at a place (of a component: those beside its own options)."""
    shape = shape_at(place)
    return shape.keys if shape is not None else ()


def references(value: Any, shape: Shape = ROOT, place: Place = ()) -> Iterator[tuple[Place, str, ComponentRef]]:
    """Every component named under a validated value: its place, kind and reference. Patches are left out."""
    if isinstance(value, ComponentRef) and not isinstance(value, ComponentPatch) and shape.of_kind is not None:
        yield place, shape.of_kind.kind, value
    for key, item in items(value):
        child = shape.child(key)
        if child is not None and child.form != "free":
            yield from references(item, child, (*place, key))


def explicit(value: Any) -> Any:
    """Turn config models into mappings of what was set in them; objects and plain values stay as they are."""
    if isinstance(value, Strict):
        names = [name for name in type(value).model_fields if name in value.model_fields_set]
        return {
            **{name: explicit(getattr(value, name)) for name in names},
            **{name: explicit(item) for name, item in (value.model_extra or {}).items()},
        }
    if isinstance(value, Mapping):
        return {str(key): explicit(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [explicit(item) for item in value]
    if isinstance(value, OptimSettings | LoraSettings):
        return {field.name: explicit(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def items(value: Any) -> list[tuple[Key, Any]]:
    """The keys (or indices) of a model, mapping or list with what stands there; empty for anything else."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _is_index(key: Key) -> bool:
    return isinstance(key, int) or key.isdecimal()


def _form(hint: Any) -> Form:
    if hint is Any:
        return "free"
    if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
        return "section"
    origin = get_origin(hint)
    if origin is dict:
        return "table"
    arguments = get_args(hint)
    return "list" if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis else "value"


@cache
def _fields(section: type) -> dict[str, Shape]:
    if issubclass(section, BaseModel):
        return {name: _field(info) for name, info in section.model_fields.items()}
    hints = get_type_hints(section, include_extras=True)
    fields = dataclasses.fields(section) if dataclasses.is_dataclass(section) else ()
    defaults = {f.name: PydanticUndefined if f.default is dataclasses.MISSING else f.default for f in fields}
    return {name: shape_of(hints[name], default) for name, default in defaults.items()}


def _field(info: FieldInfo) -> Shape:
    shape = shape_of(info.annotation, info.default)
    marks = [mark for mark in info.metadata if isinstance(mark, OfKind)]
    return dataclasses.replace(shape, of_kind=marks[0]) if marks else shape
