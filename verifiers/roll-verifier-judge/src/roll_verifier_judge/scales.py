"""What a judge is asked for: a number, a truth value, a label, or one verdict per criterion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import ConfigError
from roll_verifier_judge.text import fold


@dataclass(frozen=True, slots=True)
class NumberScale:
    """A number in [min, max]."""

    min: float
    max: float
    key: str = "score"
    integer: bool = False

    def __post_init__(self) -> None:
        bounds = (self.min, self.max)
        if not all(isinstance(b, int | float) and math.isfinite(b) for b in bounds) or self.min >= self.max:
            raise ConfigError(f"a number scale needs finite min < max, got {self.min!r} and {self.max!r}")


@dataclass(frozen=True, slots=True)
class BoolScale:
    """True or false, in the member `key` of a JSON object."""

    key: str


@dataclass(frozen=True, slots=True)
class LabelScale:
    """One of several labels; they are told apart without regard to case."""

    labels: tuple[str, ...]
    key: str | None = None
    """JSON member that holds it; None takes any that is called like a verdict."""

    def __post_init__(self) -> None:
        _check_words("a label scale", self.labels)


@dataclass(frozen=True, slots=True)
class RubricScale:
    """One of the allowed verdicts for each criterion."""

    criteria: Mapping[str, tuple[Any, ...]] = field(hash=False)

    def __post_init__(self) -> None:
        if not self.criteria or len({fold(name) for name in self.criteria}) != len(self.criteria):
            raise ConfigError(f"a rubric needs criteria with different names, got {list(self.criteria)}")
        for name, verdicts in self.criteria.items():
            _check_words(f"criterion '{name}'", verdicts)


Scale = NumberScale | BoolScale | LabelScale | RubricScale

_MEMBERS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "number": (frozenset({"min", "max"}), frozenset({"key", "integer"})),
    "bool": (frozenset({"key"}), frozenset()),
    "label": (frozenset({"labels"}), frozenset({"key"})),
    "rubric": (frozenset({"criteria"}), frozenset()),
}


def read_scale(scale: Mapping[str, Any] | Scale) -> Scale:
    """A scale out of its description as data.

        {"type": "number", "min": 0, "max": 10}                    optional: key ("score"), integer
        {"type": "bool", "key": "match"}
        {"type": "label", "labels": ["A", "B", "tie"]}             optional: key
        {"type": "rubric", "criteria": {"tone": ["no", "yes"]}}

    Raises:
        ConfigError: the description lacks a member, has an unknown one, or its values make no sense.
    """
    if not isinstance(scale, Mapping):
        return scale
    members = dict(scale)
    kind = members.pop("type", None)
    if kind not in _MEMBERS:
        raise ConfigError(f"scale type {kind!r} is not known; known: {', '.join(_MEMBERS)}")
    required, optional = _MEMBERS[kind]
    missing, unknown = sorted(required - set(members)), sorted(set(members) - required - optional)
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has no member {', '.join(unknown)}"
        raise ConfigError(f"a {kind} scale {wrong}: {dict(scale)}")
    if kind == "number":
        return NumberScale(**members)
    if kind == "bool":
        return BoolScale(**members)
    if kind == "label":
        return LabelScale(tuple(members["labels"]), members.get("key"))
    return RubricScale({name: tuple(verdicts) for name, verdicts in members["criteria"].items()})


def _check_words(what: str, words: Sequence[Any]) -> None:
    folded = [fold(str(word)) for word in words]
    if len(words) < 2 or not all(folded) or len(set(folded)) != len(folded):
        raise ConfigError(f"{what} needs at least two different words, got {list(words)}")


def schema_of(scale: Scale) -> dict[str, Any]:
    """The JSON schema of a structured reply: the reasoning first, the verdict after it."""
    reasoning = {"type": "string"}
    if isinstance(scale, RubricScale):
        entries = [
            _object({"name": {"type": "string", "enum": [name]}, "reasoning": reasoning,
                     "verdict": {"type": "string", "enum": list(verdicts)}})
            for name, verdicts in scale.criteria.items()
        ]  # fmt: skip
        return _object({"verdicts": {"type": "array", "items": {"anyOf": entries}}})
    if isinstance(scale, NumberScale):
        kind = "integer" if scale.integer else "number"
        value: dict[str, Any] = {"type": kind, "minimum": scale.min, "maximum": scale.max}
    elif isinstance(scale, BoolScale):
        value = {"type": "boolean"}
    else:
        value = {"type": "string", "enum": list(scale.labels)}
    return _object({"reasoning": reasoning, key_of(scale): value})


def key_of(scale: NumberScale | BoolScale | LabelScale) -> str:
    """The member of a structured reply that holds the verdict."""
    return scale.key or "verdict"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
