"""JSON Schema of a run for editors: the typed configuration, with the options of every installed component in place."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from roll_core.config.components import Catalogue
from roll_core.config.layers import EXTENDS
from roll_core.config.marks import SCHEMA_MARK
from roll_core.config.schema import RunConfig
from roll_core.errors import RollError

Json = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DATA_FORMS: tuple[Json, ...] = (
    {"type": "string", "description": "a path, short for {path: ...}"},
    {"type": "array", "items": {"type": "object"}, "description": "rows, short for {use: rows, rows: [...]}"},
)


def json_schema(host: Catalogue) -> Json:
    """The schema of a whole file.

    At every place that takes a component, the schema lists the installed names, and checks the options of the one
    that is named.
    """
    schema = RunConfig.model_json_schema(ref_template="#/$defs/{model}")
    definitions: Json = schema.setdefault("$defs", {})
    builder = _Components(host, definitions)
    _replace_marks(schema, builder)
    schema["properties"][EXTENDS] = {
        "description": "Files that this one is laid over.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    }
    return {"$schema": DIALECT, **schema}


def _replace_marks(node: Any, builder: _Components) -> None:
    """Point every marked reference at the definition of its kind."""
    for item in list(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()):
        _replace_marks(item, builder)
    if isinstance(node, dict) and SCHEMA_MARK in node:
        kind, _, default = node.pop(SCHEMA_MARK).partition("=")
        node["$ref"] = builder.reference(kind, default or None, node["$ref"].rpartition("/")[2])


def _one_of(names: list[str]) -> Json:
    """A component's name, bare or as `owner/name`."""
    return {"anyOf": [{"enum": names}, {"type": "string", "pattern": "/"}]} if names else {"type": "string"}


class _Components:
    """Writes one definition per kind and type of reference."""

    def __init__(self, host: Catalogue, definitions: Json) -> None:
        self.host = host
        self.definitions = definitions

    def reference(self, kind: str, default: str | None, model: str) -> str:
        """The `$ref` of a component of `kind` whose reference type is `model`."""
        key = f"{kind}.{model}" if default is None else f"{kind}.{model}.{default}"
        if key not in self.definitions:
            self.definitions[key] = self._definition(kind, default, self.definitions[model])
        return f"#/$defs/{key}"

    def _definition(self, kind: str, default: str | None, declared: Json) -> Json:
        found = {component.name: component for _, _, component in self.host.components(kind)}
        summaries = "; ".join(f"{name}: {component.summary}" for name, component in found.items())
        named: Json = {"description": summaries, **_one_of(list(found))}
        own: Json = {key: value for key, value in declared["properties"].items() if key != "use"}
        is_patch = "ComponentPatch" in declared["title"]
        whole: Json = {
            "type": "object",
            "properties": {"use": named},
            "allOf": [self._branch(kind, name, own, is_default=name == default, is_patch=is_patch) for name in found],
        }
        if default is None and not is_patch:
            whole["required"] = ["use"]
        shorts = _DATA_FORMS if kind == "sources" else (named,)
        return {"description": declared.get("description", ""), "anyOf": [*shorts, whole]}

    def _branch(self, kind: str, name: str, own: Json, *, is_default: bool, is_patch: bool) -> Json:
        """If this component is named (or meant), then these options."""
        condition: Json = {"properties": {"use": {"const": name}}}
        if not is_default:
            condition["required"] = ["use"]
        then: Json = {"properties": {"use": {"const": name}, **own}}
        options = self._options(kind, name)
        if options is not None:
            then["properties"] |= options.get("properties", {})
            if not is_patch:
                then["required"] = options.get("required", [])
            then["additionalProperties"] = options.get("additionalProperties", False)
        return {"if": condition, "then": then}

    def _options(self, kind: str, name: str) -> Json | None:
        """The schema of a component's options; None when its package or JSON cannot say."""
        try:
            model: type[BaseModel] = self.host.config_model(kind, name)
            schema = model.model_json_schema(ref_template=f"#/$defs/{kind}.{name}:{{model}}")
        except (RollError, PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
            return None
        for inner, definition in schema.pop("$defs", {}).items():
            self.definitions[f"{kind}.{name}:{inner}"] = definition
        return schema
