"""Keywords of JSON Schema whose usual implementation is not bounded in time, or not in a fixed order.

The `jsonschema` package matches the schema's patterns against the document with `re`, which a document can keep busy
for ever, compares all pairs of an array for `uniqueItems`, and divides floats for `multipleOf`, which overflows.
Everything else is left to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

from jsonschema.exceptions import ValidationError

from roll_verifier_match.bounded import TooSlowError, compiled, matches

_deadline: ContextVar[float] = ContextVar("deadline")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Give all patterns of one validation so many seconds together."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


def fits(pattern: str, text: str) -> bool:
    """Whether a schema's pattern is found in a text.

    Raises:
        TooSlowError: the time of this validation is over.
        BadPatternError: it does not compile, or takes too long on ordinary text.
    """
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise TooSlowError("the document keeps the patterns of the schema busy too long")
    return matches(compiled(pattern), text, mode="search", timeout_s=left)


def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """A text holds a match."""
    if validator.is_type(instance, "string") and not fits(wanted, instance):
        yield ValidationError(f"{instance!r:.60} does not match {wanted!r:.60}")


def pattern_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Members whose names match are valid under the pattern's schema."""
    if not validator.is_type(instance, "object"):
        return
    for source, subschema in wanted.items():
        for key, value in instance.items():
            if fits(source, key):
                yield from validator.descend(value, subschema, path=key, schema_path=source)


def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Members that neither `properties` nor `patternProperties` name are valid under this schema."""
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in instance.items():
        if key in known or any(fits(source, key) for source in patterns):
            continue
        if wanted is False:
            yield ValidationError(f"{key!r:.60} is not allowed", path=[key])
        else:
            yield from validator.descend(value, wanted, path=key)


def unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """No two items are equal."""
    if not wanted or not validator.is_type(instance, "array"):
        return
    seen: dict[str, int] = {}
    for index, item in enumerate(instance):
        first = seen.setdefault(json.dumps(_plain(item), sort_keys=True), index)
        if first != index:
            yield ValidationError(f"items {first} and {index} are equal", path=[index])


def _plain(value: Any) -> Any:
    """The value with whole floats as integers, so that 1 and 1.0 are equal and true and 1 are not."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def multiple_of(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """A number is a multiple, in decimals as written: 19.99 is one of 0.01, whatever binary floats make of it."""
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(wanted)) != 0:
        yield ValidationError(f"{instance!r:.60} is not a multiple of {wanted!r:.60}")


def unevaluated_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Members that nothing beside this keyword has looked at are valid under this schema."""
    if not validator.is_type(instance, "object"):
        return
    known = evaluated_keys(validator, instance, {k: v for k, v in schema.items() if k != "unevaluatedProperties"})
    for key, value in instance.items():
        if key in known:
            continue
        if wanted is False:
            yield ValidationError(f"{key!r:.60} is not allowed", path=[key])
        else:
            yield from validator.descend(value, wanted, path=key)


def evaluated_keys(validator: Any, instance: Mapping[str, Any], schema: Any) -> set[str]:
    """Members of an object that the keywords of a schema look at, following the schemas the object is valid under."""
    if not isinstance(schema, Mapping):
        return set()
    keys: set[str] = set()
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            found = validator._resolver.lookup(schema[keyword])  # the package offers no public way
            inner = validator.evolve(schema=found.contents, _resolver=found.resolver)
            keys |= evaluated_keys(inner, instance, found.contents)
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return keys | set(instance)
    keys |= schema.get("properties", {}).keys() & instance.keys()
    keys |= {key for key in instance if any(fits(source, key) for source in schema.get("patternProperties", {}))}
    for subschema in _applied(validator, instance, schema):
        keys |= evaluated_keys(validator, instance, subschema)
    return keys


def _applied(validator: Any, instance: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Any]:
    """Subschemas that apply to the object itself and hold."""
    yield from (sub for key, sub in schema.get("dependentSchemas", {}).items() if key in instance)
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (sub for sub in schema.get(keyword, ()) if _is_valid(validator, instance, sub))
    if "if" in schema:
        holds = _is_valid(validator, instance, schema["if"])
        if holds:
            yield schema["if"]
        yield schema.get("then" if holds else "else", True)


def _is_valid(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


KEYWORDS: dict[str, Keyword] = {
    "additionalProperties": additional_properties,
    "multipleOf": multiple_of,
    "pattern": pattern,
    "patternProperties": pattern_properties,
    "uniqueItems": unique_items,
}
"""The keywords of every draft."""
