"""`json_schema`: the response's JSON is valid under a schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_match.bounded import BadPatternError, TooSlowError
from roll_verifier_match.compile_schema import BadSchemaError, compile_schema, schema_text
from roll_verifier_match.find_json import Find, NoJsonError, check_size, find_json
from roll_verifier_match.keywords import time_limit

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

PATTERNS_S = 1.0
"""Seconds that all patterns of a schema may take on one document."""
_SHOWN = 2_000
_PROBES: tuple[Any, ...] = (None, True, 0, "", [], {})


@dataclass(frozen=True, slots=True)
class JsonSchemaVerifier:
    """Accepts a response whose JSON is valid under a schema.

    * `CORRECT`: valid ("valid").
    * `INCORRECT`: not valid, `detail` is "schema" and the JSON pointer of the first value that fails
      ("schema /tags/0", "schema" alone for the whole); or a text keeps the patterns busy too long ("timeout").
    * `INVALID`: no JSON ("no_json", "broken_json"), a key twice ("duplicate_key"), NaN and the like ("bad_number"), or
      beyond the limits ("too_long", "too_large", "too_deep").
    * `UNDECIDED`: the schema is none, refers to something outside itself, or recurses for ever ("bad_schema").

    Args:
        find: "first" takes the first object (the first array where the schema's type is "array") of the response,
            "fenced" the content of the last code fence for JSON, "strict" the whole response.
        default_schema: used where a row has no reference.
        max_chars: longest response outside thinking, in characters.
        max_depth: deepest nesting.
        max_nodes: most values, containers among them.

    Raises:
        ValueError: a limit is not positive, or `default_schema` is no schema.
    """

    find: Find = "first"
    default_schema: dict[str, Any] | None = None
    max_chars: int = 200_000
    max_depth: int = 32
    max_nodes: int = 10_000

    def __post_init__(self) -> None:
        if min(self.max_chars, self.max_depth, self.max_nodes) < 1:
            raise ValueError("max_chars, max_depth and max_nodes must be positive")
        if self.default_schema is not None:
            try:
                compile_schema(schema_text(self.default_schema))
            except BadSchemaError as error:
                raise ValueError(f"default_schema: {error}") from error

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
    ) -> Verdict:
        """Judge one response.

        Args:
            response: what the policy wrote.
            reference: the schema, as a mapping or JSON text; None takes `default_schema`.
            prompt: not looked at.
            rollout: not looked at.
        """
        try:
            validator = compile_schema(schema_text(self.default_schema if reference is None else reference))
        except BadSchemaError as error:
            return Verdict.undecided(str(error), detail="bad_schema")
        opening = "[" if validator.schema.get("type") == "array" else "{"
        try:
            value = find_json(response, self.find, opening=opening, max_chars=self.max_chars)
            check_size(value, max_depth=self.max_depth, max_nodes=self.max_nodes)
        except NoJsonError as error:
            return Verdict.invalid(str(error), detail=error.detail)
        return _judge(validator, value)


def _judge(validator: Any, value: Any) -> Verdict:
    import referencing.exceptions

    answer = json.dumps(value, ensure_ascii=False)[:_SHOWN]
    try:
        with time_limit(PATTERNS_S):
            error = next(validator.iter_errors(value), None)
    except TooSlowError as slow:
        return Verdict.incorrect(answer, detail="timeout", reason=str(slow))
    except (BadPatternError, referencing.exceptions.Unresolvable) as bad:
        return Verdict.undecided(f"the schema cannot be used: {bad}", answer=answer, detail="bad_schema")
    except RecursionError:
        if _recurses(validator):
            return Verdict.undecided("the schema refers to itself for ever", answer=answer, detail="bad_schema")
        return Verdict.invalid("the JSON is nested too deep for the schema", answer=answer, detail="too_deep")
    if error is None:
        return Verdict.correct(answer, detail="valid")
    return Verdict.incorrect(answer, detail=f"schema {_pointer(error)}".strip()[:200], reason=error.message[:300])


def _pointer(error: ValidationError) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in error.absolute_path)
    return "".join(f"/{part}" for part in parts)


def _recurses(validator: Any) -> bool:
    """Whether even values without depth take the schema into an endless recursion."""
    for probe in _PROBES:
        try:
            with time_limit(PATTERNS_S):
                next(validator.iter_errors(probe), None)
        except RecursionError:
            return True
    return False
