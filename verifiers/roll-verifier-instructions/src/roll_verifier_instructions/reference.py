"""References as IFEval rows carry them, read into constraints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roll_core.types import Prompt
from roll_verifier_instructions.base import BrokenTaskError, Constraint
from roll_verifier_instructions.constraints.combination import RepeatPrompt
from roll_verifier_instructions.registry import constraint_type


def read_reference(reference: Any, prompt: Prompt | None) -> list[Constraint]:
    """The constraints of a reference, in its order.

    Args:
        reference: `{"instruction_id_list": […], "kwargs": [{…}, …]}`, or that as JSON text; `prompt` may be there too.
        prompt: the task, for `combination:repeat_prompt` without its argument.

    Raises:
        BrokenTaskError: it is none, or one of its instructions cannot be checked.
    """
    row = _as_mapping(reference)
    ids, arguments = row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(ids, list | tuple) or not all(isinstance(instruction_id, str) for instruction_id in ids):
        raise BrokenTaskError(f"'instruction_id_list' must be a list of ids, got {ids!r:.80}")
    if not ids:
        raise BrokenTaskError("'instruction_id_list' is empty: a task without instructions cannot be failed")
    if not isinstance(arguments, list | tuple) or len(arguments) != len(ids):
        raise BrokenTaskError(f"'kwargs' must be a list of {len(ids)} mappings, one for each id, got {arguments!r:.80}")
    fallback = _request(row, prompt)
    return [_build(name, _as_kwargs(one), fallback) for name, one in zip(ids, arguments, strict=True)]


def _build(instruction_id: str, kwargs: Mapping[str, Any], request: str | None) -> Constraint:
    kind = constraint_type(instruction_id)
    if kind is RepeatPrompt and kwargs.get("prompt_to_repeat") is None and request:
        kwargs = {**kwargs, "prompt_to_repeat": request}
    return kind.from_kwargs(kwargs)


def _as_mapping(reference: Any) -> Mapping[str, Any]:
    if isinstance(reference, str):
        try:
            reference = json.loads(reference)
        except ValueError as error:
            raise BrokenTaskError(f"the reference is text that is not JSON: {error}") from error
    if not isinstance(reference, Mapping):
        raise BrokenTaskError(
            f"the reference must be a mapping with 'instruction_id_list' and 'kwargs', got {type(reference).__name__}"
        )
    return reference


def _as_kwargs(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BrokenTaskError(f"every entry of 'kwargs' must be a mapping, got {value!r:.80}")
    return value


def _request(row: Mapping[str, Any], prompt: Prompt | None) -> str | None:
    """What the user asked, where the row does not say what is to be repeated."""
    if isinstance(row.get("prompt"), str):
        return str(row["prompt"])
    if prompt is None:
        return None
    if prompt.text is not None:
        return prompt.text
    asked = [message["content"] for message in prompt.messages if message.get("role") == "user"]
    return asked[-1] if asked and isinstance(asked[-1], str) else None
