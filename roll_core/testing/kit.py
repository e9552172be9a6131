"""The conformance kit: one named check per property, per kind of component.

A check is a function of a `Subject` (the component, its options and cases). It returns when the property holds and
raises `CheckFailed` when it does not; `CheckSkipped` says why a property could not be tested here.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest import SkipTest

import pydantic

from roll_core.contracts import KINDS
from roll_core.errors import ConfigError, unknown_name
from roll_core.plugin.component import Component
from roll_core.testing.cases import Cases, find_cases
from roll_core.testing.context import context_for

Outcome = Literal["passed", "failed", "skipped", "expected_failure"]
C = TypeVar("C", bound=Cases)


class CheckFailed(AssertionError):  # noqa: N818  # reads as the finding it is
    """A component lacks a property; the message says which, how it showed, and what to do."""


class CheckSkipped(SkipTest):
    """A property could not be tested here; pytest shows it as a skip."""


class MissingCases(CheckSkipped):
    """A property could not be tested because the component's package gives no cases for it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One component under test."""

    component: Component
    kind: str
    options: Mapping[str, Any]
    cases: Cases | None
    folder: Path
    """A scratch folder, removed after the check."""

    def build(self, **context: Any) -> Any:
        """Build the component from its options.

        Args:
            context: overrides of what the kit supplies in the engine's place.

        Raises:
            MissingCases: the component has required options, or needs the network, and nobody gave cases.
            CheckSkipped: a module it needs is not installed.
        """
        if "network" in self.component.permissions and self.cases is None:
            raise MissingCases(f"'{self.component.name}' needs the network: give cases with options that do without")
        absent = sorted(name for name in (self.cases.needs if self.cases else ()) if not _is_there(name))
        if absent:
            raise CheckSkipped(f"'{self.component.name}' needs {', '.join(absent)}, which is not installed here")
        own = self.cases.context if self.cases is not None else {}
        supplied = {**context_for(self.kind, self.folder), **own, **context}
        try:
            return self.component.build(self.options, **supplied)
        except pydantic.ValidationError as error:
            missing = [".".join(map(str, e["loc"])) for e in error.errors() if e["type"] == "missing"]
            if self.options or not missing:
                raise
            raise MissingCases(f"'{self.component.name}' has required options ({', '.join(missing)})") from error

    def require_cases(self, cls: type[C]) -> C:
        """The cases, of the class this kind needs.

        Raises:
            MissingCases: there are none.
        """
        if not isinstance(self.cases, cls):
            raise MissingCases(
                f"no {cls.__name__} for '{self.kind}/{self.component.name}': add them to CONFORMANCE in the module "
                "'conformance' of its package"
            )
        return self.cases


CheckFunction = Callable[[Subject], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One property of one kind of component."""

    name: str
    kind: str
    description: str
    fn: CheckFunction
    needs: frozenset[str] = frozenset()
    """Packages without which the check is skipped."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How one check of one component went."""

    check: str
    kind: str
    component: str
    outcome: Outcome
    reason: str = ""
    lacks_cases: bool = False
    """Skipped because the package gives no cases."""


_OPTIONAL = frozenset({"datasets", "matplotlib", "peft", "pyarrow", "safetensors", "torch", "transformers"})
"""What the core's extra `train` brings."""
_REGISTRY: dict[str, dict[str, Check]] = {}
ANY_KIND = "*"
"""Kind of the checks that hold for every component."""


def check(kind: str, *, needs: tuple[str, ...] = ()) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check: its name is the check's, the first line of its docstring the description."""

    def register(fn: CheckFunction) -> CheckFunction:
        description = (fn.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        _REGISTRY.setdefault(kind, {})[fn.__name__] = Check(fn.__name__, kind, description, fn, frozenset(needs))
        return fn

    return register


def checks_for(kind: str) -> tuple[Check, ...]:
    """Every check that a component of `kind` has to pass, those of all kinds first.

    Raises:
        UnknownNameError: there is no such kind.
    """
    importlib.import_module("roll_core.testing.checks")
    if kind not in KINDS:
        raise unknown_name("kind of component", kind, KINDS)
    return (*_REGISTRY.get(ANY_KIND, {}).values(), *_REGISTRY.get(kind, {}).values())


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """A check together with the component it is to be run on; call it to run it."""

    check: Check
    component: Component
    kind: str
    options: Mapping[str, Any] | None
    """Options to build it with; None takes those of the cases."""
    cases: Cases | None
    expected_failure: str = ""
    """Why this component cannot pass; empty when it must."""

    @property
    def id(self) -> str:
        """kind/component/check."""
        return f"{self.kind}/{self.component.name}/{self.check.name}"

    def __call__(self) -> None:
        """Run the check in a scratch folder of its own, whatever is expected of it.

        Raises:
            CheckFailed: the property does not hold.
            CheckSkipped: it cannot be tested here.
        """
        absent = sorted(name for name in self.check.needs if not _is_there(name))
        if absent:
            raise CheckSkipped(f"needs {', '.join(absent)}: install roll-core[train]")
        with tempfile.TemporaryDirectory(prefix="roll-check-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            options = self.options
            if options is None:
                options = self.cases.resolve_options(folder) if self.cases is not None else {}
            try:
                self.check.fn(Subject(self.component, self.kind, options, self.cases, folder))
            except ModuleNotFoundError as error:
                package = (error.name or "").partition(".")[0]
                if package not in _OPTIONAL:
                    raise
                raise CheckSkipped(f"needs {package}: install roll-core[train]") from error

    def result(self) -> CheckResult:
        """Run the check and report; an exception of the component is a failure of the check."""

        def report(outcome: Outcome, reason: str = "", *, lacks_cases: bool = False) -> CheckResult:
            return CheckResult(self.check.name, self.kind, self.component.name, outcome, reason, lacks_cases)

        try:
            self()
        except CheckSkipped as skip:
            return report("skipped", str(skip), lacks_cases=isinstance(skip, MissingCases))
        except Exception as error:  # noqa: BLE001  # whatever a component raises is a finding, reported with its type
            if self.expected_failure:
                return report("expected_failure", self.expected_failure)
            text = str(error) if isinstance(error, CheckFailed) else f"raised {type(error).__name__}: {error}"
            return report("failed", text)
        if self.expected_failure:
            return report("failed", f"passes, though declared an expected failure ('{self.expected_failure}')")
        return report("passed")


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def bind_checks(
    component: Component,
    kind: str,
    *,
    options: Mapping[str, Any] | None = None,
    cases: Cases | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[BoundCheck, ...]:
    """Bind every check of `kind` to `component`.

    Args:
        component: what to test.
        kind: its kind ("verifiers").
        options: options to build it with; None takes those of the cases.
        cases: examples; None looks for them in the `conformance` module of the component's package.
        expected_failures: checks that cannot pass, with reasons; added to those of the cases.

    Raises:
        ConfigError: an expected failure has no reason, or names no check.
    """
    cases = find_cases(kind, component) if cases is None else cases
    expected = {**(cases.expected_failures if cases is not None else {}), **(expected_failures or {})}
    checks = checks_for(kind)
    for name, reason in expected.items():
        if name not in {c.name for c in checks}:
            raise unknown_name(f"check of {kind}", name, [c.name for c in checks], "expected_failures")
        if not reason:
            raise ConfigError(f"expected failure '{name}' of component '{component.name}' needs a reason")
    return tuple(BoundCheck(c, component, kind, options, cases, expected.get(c.name, "")) for c in checks)


def check_component(
    component: Component,
    kind: str,
    *,
    options: Mapping[str, Any] | None = None,
    cases: Cases | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> list[CheckResult]:
    """Run every check of `kind` on `component`; arguments as for `bind_checks`."""
    bound = bind_checks(component, kind, options=options, cases=cases, expected_failures=expected_failures)
    return [b.result() for b in bound]
