"""One pytest case per check, in a few lines of an author's test file."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from roll_core.contracts import KINDS
from roll_core.errors import PluginError
from roll_core.plugin.component import Component
from roll_core.testing.cases import Cases
from roll_core.testing.kit import BoundCheck, bind_checks


def parametrize_checks(
    kind: str,
    component: Component,
    *,
    options: Mapping[str, Any] | None = None,
    cases: Cases | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Any:
    """A pytest decorator that runs a test function once per check, as its argument `check`.

        @parametrize_checks("verifiers", Component("mine", MyVerifier), cases=VerifierCases(gold=[("4", "4")]))
        def test_conformance(check):
            check()

    Args:
        kind: kind of component ("verifiers").
        component: what to test.
        options: options to build it with.
        cases: examples; None looks for the `conformance` module of its package.
        expected_failures: checks that cannot pass, with reasons.
    """
    bound = bind_checks(component, kind, options=options, cases=cases, expected_failures=expected_failures)
    return parametrize_bound(bound)


def parametrize_bound(bound: Iterable[BoundCheck]) -> Any:
    """A pytest decorator over checks that are already bound; expected failures become strict xfails."""
    import pytest

    params = []
    for one in bound:
        marks = [pytest.mark.xfail(reason=one.expected_failure, strict=True)] if one.expected_failure else []
        params.append(pytest.param(one, id=one.id, marks=marks))
    return pytest.mark.parametrize("check", params)


def conformance(plugin: str) -> Callable[[BoundCheck], None]:
    """A pytest test function that runs every check of every component a plugin declares.

        test_conformance = conformance("roll_verifier_mine.plugin")

    Args:
        plugin: import name of the plugin module, as in its entry point.

    Raises:
        PluginError: the module declares no component.
    """
    bound = [check for kind, component in declared_components(plugin) for check in bind_checks(component, kind)]
    if not bound:
        raise PluginError(f"module '{plugin}' declares no component: implement a roll_register_<kind> hook")

    def test_conformance(check: BoundCheck) -> None:
        check()

    decorated: Callable[[BoundCheck], None] = parametrize_bound(bound)(test_conformance)
    return decorated


def declared_components(plugin: str) -> Iterator[tuple[str, Component]]:
    """(kind, component) of everything the declaring hooks of a plugin module return, without a host."""
    module = importlib.import_module(plugin)
    for kind in KINDS:
        hook = getattr(module, f"roll_register_{kind}", None)
        for component in hook() if hook is not None else ():
            yield kind, component
