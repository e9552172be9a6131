"""A JSON Schema, checked and made ready: no remote reference, no unknown dialect, no pattern that does not compile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema
import referencing.exceptions
from jsonschema.exceptions import SchemaError
from referencing.jsonschema import EMPTY_REGISTRY, specification_with

from roll_verifier_match.bounded import BadPatternError, compiled
from roll_verifier_match.find_json import NoJsonError, read_json
from roll_verifier_match.formats import format_checker
from roll_verifier_match.keywords import KEYWORDS, unevaluated_properties

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_CHARS = 1_000_000

_extend: Any = jsonschema.validators.extend
_CLASSES: dict[str, Any] = {
    DEFAULT_DIALECT: _extend(
        jsonschema.Draft202012Validator, {**KEYWORDS, "unevaluatedProperties": unevaluated_properties}
    ),
    "http://json-schema.org/draft-07/schema": _extend(jsonschema.Draft7Validator, KEYWORDS),
    "http://json-schema.org/draft-06/schema": _extend(jsonschema.Draft6Validator, KEYWORDS),
    "http://json-schema.org/draft-04/schema": _extend(jsonschema.Draft4Validator, KEYWORDS),
}
_REFERENCES = ("$ref", "$dynamicRef")


class BadSchemaError(Exception):
    """A schema that nothing can be checked against; the message says why."""


def schema_text(schema: Any) -> str:
    """A schema as JSON text.

    Args:
        schema: a mapping, or JSON text already.

    Raises:
        BadSchemaError: it is neither.
    """
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        raise BadSchemaError(f"the schema is no mapping and no JSON text: {schema!r:.100}")
    try:
        return json.dumps(schema, allow_nan=False, default=dict)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchemaError(f"the schema is no JSON: {error}") from error


@lru_cache(maxsize=256)
def compile_schema(text: str) -> Any:
    """A validator of the `jsonschema` package for a schema.

    Args:
        text: the schema as JSON; Draft 2020-12 unless `$schema` names draft 7, 6 or 4.

    Raises:
        BadSchemaError: it is no JSON, no valid schema, of another dialect, or refers to something outside itself.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise BadSchemaError(f"the schema has {len(text)} characters, more than {MAX_SCHEMA_CHARS}")
    try:
        schema = read_json(text)
    except (NoJsonError, RecursionError) as error:
        raise BadSchemaError(f"the schema is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise BadSchemaError(f"the schema is no object: {text[:100]}")
    dialect = str(schema.get("$schema", DEFAULT_DIALECT)).rstrip("#")
    if dialect not in _CLASSES:
        raise BadSchemaError(f"$schema '{dialect[:100]}' is none of {', '.join(_CLASSES)}")
    try:
        _CLASSES[dialect].check_schema(schema)
        _check_parts(schema, dialect)
    except SchemaError as error:
        raise BadSchemaError(f"no valid schema: {error.json_path}: {error.message[:200]}") from error
    except RecursionError as error:
        raise BadSchemaError("the schema is nested too deep") from error
    return _CLASSES[dialect](schema, registry=EMPTY_REGISTRY, format_checker=format_checker())


def _check_parts(schema: dict[str, Any], dialect: str) -> None:
    """Resolve every reference and compile every pattern.

    Raises:
        BadSchemaError: one leads nowhere, or does not compile.
    """
    resource = specification_with(dialect).create_resource(schema)
    resolver = EMPTY_REGISTRY.resolver_with_root(resource)
    queue = [(resource, resolver)]
    while queue:
        part, resolver = queue.pop()
        if isinstance(part.contents, Mapping):
            _check_references(part.contents, resolver)
            _check_patterns(part.contents)
        queue += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]


def _check_references(part: Mapping[str, Any], resolver: Any) -> None:
    for keyword in _REFERENCES:
        if keyword in part:
            try:
                resolver.lookup(part[keyword])
            except (referencing.exceptions.Unresolvable, ValueError) as error:
                reason = f"{keyword} '{str(part[keyword])[:100]}' leads nowhere; nothing outside the schema is fetched"
                raise BadSchemaError(reason) from error


def _check_patterns(part: Mapping[str, Any]) -> None:
    sources = [*([part["pattern"]] if "pattern" in part else []), *part.get("patternProperties", {})]
    for source in sources:
        try:
            compiled(source)
        except BadPatternError as error:
            raise BadSchemaError(str(error)) from error
