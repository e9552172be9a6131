r"""Examples a package gives so that its components can be tested.

A package keeps them in a module `conformance` (beside `plugin.py`), in a mapping from "<kind>/<component>" to cases:

    CONFORMANCE = {"verifiers/math": VerifierCases(gold=[("\\boxed{2}", "2")], wrong=[("\\boxed{3}", "2")])}

The module is read only by the conformance kit; nothing in a run imports it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roll_core.errors import PluginError
from roll_core.plugin.component import Component
from roll_core.types import RolloutGroup

Pair = tuple[str, Any]
"""(response, reference)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """What every kind understands."""

    options: Mapping[str, Any] | Callable[[Path], Mapping[str, Any]] = field(default_factory=dict)
    """Options the component is built with; or a function that makes them (a file, say) in an empty folder."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """What the engine would supply (`contracts.CONTEXT`), where the kit's own choice does not fit."""
    needs: tuple[str, ...] = ()
    """Modules without which the component cannot be built; where one is missing, checks that build it are skipped."""
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    """Names of checks that this component cannot pass, each with the reason. One that passes anyway is a failure."""

    def resolve_options(self, folder: Path) -> dict[str, Any]:
        """The options as a fresh dictionary; what they need is made in `folder`."""
        return dict(self.options(folder) if callable(self.options) else self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierCases(Cases):
    """Right and wrong answers."""

    gold: Sequence[Pair]
    """Responses that must score 1, each with its reference."""
    wrong: Sequence[Pair] = ()
    """Responses that must score below 1."""
    limit_s: float = 10.0
    """Seconds one response may take, however long or odd it is."""
    golden: str | None = None
    """A table of labelled answers, a file in the package (`roll_core.testing.golden`); error rates come from it."""
    judge_golden: Callable[[Any, Any], tuple[bool | None, str]] | None = None
    """(verifier, row) to (found, said), where a plain `verify` is not what the table is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCases(Cases):
    """Groups to reward, beside the kit's own."""

    groups: Sequence[RolloutGroup] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCases(Cases):
    """One episode."""

    actions: Sequence[str]
    """Played in order, the last one over and over, until the episode ends."""
    max_steps: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageCases(Cases):
    """Claims about an estimator, where the built object does not carry them as attributes of the same names."""

    scope: Literal["group", "segment", "batch"] | None = None
    """What one rollout's advantage may depend on: its group, only itself, or the whole batch."""
    is_centered: bool | None = None
    """Whether equal rewards within a group give zero advantages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLossCases(Cases):
    """Claims about a loss, where the built object does not carry them as attributes of the same names."""

    is_reinforce_at_one: bool | None = None
    """Whether the gradient is -A at ratio 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCases(Cases):
    """Options of a train strategy that change the layout of the work and nothing else."""

    accumulation: Sequence[Mapping[str, Any]] = ()
    """Option sets (say, small and large token budgets of a micro-batch) that must give the same update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCases(Cases):
    """Whether a model may be prepared during a test."""

    is_runnable: bool = False


def find_cases(kind: str, component: Component) -> Cases | None:
    """The cases of a component out of the nearest `conformance` module of its package; None when there are none.

    For a factory in `a.b.c` the modules `a.b.c.conformance`, `a.b.conformance` and `a.conformance` are looked at.

    Raises:
        PluginError: the module has no mapping `CONFORMANCE`, or the entry is not a `Cases`.
    """
    parts = origin_of(component).partition(":")[0].split(".")
    for depth in range(len(parts), 0, -1):
        name = ".".join([*parts[:depth], "conformance"])
        if _exists(name):
            found = _read(name).get(f"{kind}/{component.name}")
            if found is not None:
                return found
    return None


def origin_of(component: Component) -> str:
    """Where a component's code is, as "module:qualified name", also where its factory is an object or a function."""
    factory: Any = component.factory
    if isinstance(factory, str):
        return factory
    code = getattr(factory, "function", factory)  # a plain function that was lifted to a component
    code = code if hasattr(code, "__qualname__") else type(code)
    return f"{code.__module__}:{code.__qualname__}"


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent is a plain module, or there is none
        return False


def _read(module: str) -> Mapping[str, Cases]:
    mapping = getattr(importlib.import_module(module), "CONFORMANCE", None)
    if not isinstance(mapping, Mapping):
        raise PluginError(f"module '{module}' needs a mapping CONFORMANCE from '<kind>/<component>' to cases")
    for key, value in mapping.items():
        if not isinstance(value, Cases):
            raise PluginError(f"entry '{key}' of {module}.CONFORMANCE is not a Cases object: {value!r}")
    return mapping
