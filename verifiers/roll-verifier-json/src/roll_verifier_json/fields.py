"""`json_fields`: the first JSON object of the response has the reference's fields."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.types import Prompt, Rollout, Verdict, without_thinking
from roll_verifier_json.find import NoObjectError, find_object


@dataclass(frozen=True, slots=True)
class JsonFieldsVerifier:
    """Compares the first JSON object of a response with the reference, key by key, whatever their order.

    * `CORRECT`: every key of the reference is there with an equal value.
    * `INCORRECT`: a value differs, a key is missing, or there is one too many; with `partial` the score is the share
      of fields that are right.
    * `INVALID`: no JSON object (a key twice, NaN and Infinity make an object invalid).
    * `UNDECIDED`: the reference is no mapping, nor the JSON text of an object.

    Thinking (`<think>…</think>`) is left out first.

    Args:
        strict: the whole response must be the object; otherwise prose and code fences may surround it.
        extra_keys: allow keys that the reference does not have, at every level.
        types: the type of a value counts: "30" is not 30, true is not 1 (30 and 30.0 are one number). Without it,
            values are also equal when they read the same as text ("30" and 30, "true" and true).
        partial: score the share of right top-level fields instead of all or nothing; extra keys count as wrong fields.
    """

    strict: bool = False
    extra_keys: bool = False
    types: bool = True
    partial: bool = False

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
            reference: the right fields, as a mapping or as the JSON text of an object.
            prompt: not looked at.
            rollout: not looked at.
        """
        gold = _reference_fields(reference)
        if gold is None:
            reason = f"the reference is no mapping of fields: {reference!r:.100}"
            return Verdict.undecided(reason, detail="bad_reference")
        try:
            given = find_object(without_thinking(response), strict=self.strict)
        except NoObjectError as error:
            return Verdict.invalid(str(error), detail="no_object")
        return self._judge(gold, given)

    def _judge(self, gold: Mapping[str, Any], given: Mapping[str, Any]) -> Verdict:
        answer = json.dumps(given)[:2000]
        wrong = [key for key in gold if key not in given or not self._equal(gold[key], given[key])]
        extra = [] if self.extra_keys else [key for key in given if key not in gold]
        if not wrong and not extra:
            return Verdict.correct(answer, detail="equal")
        fields = len(gold) + len(extra)
        score = (len(gold) - len(wrong)) / fields if self.partial else 0.0
        if wrong:
            missing = [key for key in wrong if key not in given]
            detail = "missing_key" if missing else "wrong_value"
            return Verdict.incorrect(answer, score=score, detail=detail, reason=f"field {(missing or wrong)[0]!r:.60}")
        return Verdict.incorrect(answer, score=score, detail="extra_key", reason=f"extra field {extra[0]!r:.60}")

    def _equal(self, gold: Any, given: Any) -> bool:
        if isinstance(gold, Mapping) and isinstance(given, dict):
            keys_fit = gold.keys() <= given.keys() if self.extra_keys else gold.keys() == given.keys()
            return keys_fit and all(self._equal(gold[key], given[key]) for key in gold)
        if isinstance(gold, list | tuple) and isinstance(given, list):
            return len(gold) == len(given) and all(map(self._equal, gold, given))
        return _same_scalar(gold, given) or (not self.types and _as_text(gold) == _as_text(given) is not None)


def _same_scalar(gold: Any, given: Any) -> bool:
    if isinstance(gold, bool) or isinstance(given, bool):
        return gold is given
    if isinstance(gold, int | float) and isinstance(given, int | float):
        return gold == given
    return type(gold) is type(given) and bool(gold == given)


def _as_text(value: Any) -> str | None:
    """How a scalar reads; None for objects and lists."""
    if isinstance(value, str):
        text = value.strip()
        return _as_text(float(text)) if _is_number(text) else text.lower()
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(int(value)) if float(value).is_integer() else repr(float(value))
    return None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _reference_fields(reference: Any) -> Mapping[str, Any] | None:
    if isinstance(reference, str):
        try:
            return find_object(reference, strict=True)
        except NoObjectError:
            return None
    return reference if isinstance(reference, Mapping) else None
