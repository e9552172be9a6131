"""Checks that hold for components of every kind."""

from __future__ import annotations

import pydantic

from roll_core import contracts
from roll_core.plugin.building import missing_members
from roll_core.testing.kit import ANY_KIND, CheckFailed, CheckSkipped, Subject, check

_COSTLY = ("rollout_backends", "train_strategies")
"""Kinds that are not built only to look at them; the checks that run them show that they fit."""


@check(ANY_KIND)
def rejects_unknown_options(subject: Subject) -> None:
    """A misspelt option is an error, not silently ignored."""
    model = subject.component.config_model(contracts.CONTEXT.get(subject.kind, ()))
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
def fits_its_contract(subject: Subject) -> None:
    """The built object has the members of its kind, and its requirements are column names."""
    if subject.kind in _COSTLY:
        raise CheckSkipped("shown by the checks that run it")
    built = subject.build()
    absent = missing_members(subject.kind, built)
    if absent:
        raise CheckFailed(
            f"the factory made a {type(built).__name__}, which lacks {', '.join(absent)}: see the protocol of "
            f"{subject.kind} in roll_core.contracts"
        )
    wrong = [name for name in contracts.requirements_of(built) if not isinstance(name, str)]
    if wrong:
        raise CheckFailed(f"requirements() must return names of columns, got {wrong!r}")
