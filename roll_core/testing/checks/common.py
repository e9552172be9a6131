"""Checks that hold for components of every kind."""

from __future__ import annotations

import inspect
from typing import Any

import pydantic

from roll_core import contracts
from roll_core.testing.kit import ANY_KIND, CheckFailed, CheckSkipped, Subject, check

_PROTOCOLS: dict[str, Any] = {
    "verifiers": contracts.Verifier,
    "rewards": contracts.RewardFunction,
    "filters": contracts.Filter,
    "mixers": contracts.Mixer,
    "sources": contracts.Source,
    "environments": contracts.Environment,
    "advantages": contracts.AdvantageEstimator,
    "policy_losses": contracts.PolicyLoss,
    "trackers": contracts.Tracker,
    "models": contracts.ModelResolver,
}
"""Kinds whose components are cheap to build; engines show that they fit when they are run."""


@check(ANY_KIND)
def rejects_unknown_options(subject: Subject) -> None:
    """A misspelt option is an error, not silently ignored."""
    names = contracts.CONTEXT.get(subject.kind, ())
    model = subject.component.config_model(names)
    try:
        model.model_validate({**subject.options, "no_such_option": 1})
    except pydantic.ValidationError as error:
        if any(e["type"] == "extra_forbidden" for e in error.errors()):
            return
    raise CheckFailed(
        f"config model '{model.__name__}' accepts an option nobody declared: set "
        'model_config = ConfigDict(extra="forbid")'
    )


@check(ANY_KIND)
def fits_its_protocol(subject: Subject) -> None:
    """The built object has the methods of its kind, and its requirements are column names."""
    protocol = _PROTOCOLS.get(subject.kind)
    if protocol is None:
        raise CheckSkipped("shown by the checks that run it")
    built = subject.build()
    if not isinstance(built, protocol):
        members = sorted(n for n, v in inspect.getmembers(protocol) if callable(v) and _is_member(n))
        absent = [name for name in members if not hasattr(built, name)]
        raise CheckFailed(
            f"the factory returned a {type(built).__name__}, which lacks {', '.join(absent)} of "
            f"contracts.{protocol.__name__}"
        )
    wrong = [name for name in contracts.requirements_of(built) if not isinstance(name, str)]
    if wrong:
        raise CheckFailed(f"requirements() must return names of columns, got {wrong!r}")


def _is_member(name: str) -> bool:
    return not name.startswith("_") or name in {"__call__", "__len__", "__getitem__"}
