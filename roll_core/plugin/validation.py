"""From a failed validation of a component's options to one sentence that says what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roll_core.errors import ConfigError, near_match

if TYPE_CHECKING:
    import pydantic


def options_error(
    error: pydantic.ValidationError, model: type[pydantic.BaseModel], label: str, place: str
) -> ConfigError:
    """Explain why options do not fit.

    Args:
        error: what pydantic found.
        model: the component's config model.
        label: the component, as messages call it ("verifier 'math'").
        place: where the options were written, as a dotted config path; empty from Python.
    """
    where = f" ({place})" if place else ""
    problems = [_problem(dict(item), model) for item in error.errors(include_url=False)]
    return ConfigError(f"{label}{where}: {'; '.join(problems)}; {known_options(model)}")


def known_options(model: type[pydantic.BaseModel]) -> str:
    """List the options of a component: "known options: eps (float = 0.0001), ddof (int)"."""
    options = [f"{name} ({field_type(model, name)})" for name in model.model_fields]
    return f"known options: {', '.join(options)}" if options else "it takes no options"


def field_type(model: type[pydantic.BaseModel], name: str) -> str:
    """Type and default of one option, as Python spells them: "float = 0.0001"."""
    field = model.model_fields[name]
    annotation = field.annotation
    spelled = annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else None
    text = spelled or str(annotation).replace("typing.", "")
    return text if field.is_required() else f"{text} = {field.get_default(call_default_factory=True)!r}"


def _problem(item: dict[str, Any], model: type[pydantic.BaseModel]) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        hint = near_match(str(item["loc"][-1]), model.model_fields) if len(item["loc"]) == 1 else ""
        return f"unknown option '{path}'{hint}"
    if item["type"] == "missing":
        return f"option '{path}' is missing"
    message = item["msg"][:1].lower() + item["msg"][1:]
    return f"option '{path}': {message}, got {item['input']!r}" if path else message
