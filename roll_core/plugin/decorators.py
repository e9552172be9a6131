"""`@verifier`, `@reward`, `@advantage`, `@policy_loss`, `@filter`: a plain function becomes a component.

The decorated function stays what it was (it can be called, tested and pickled); the declaration hangs on it. Decorated
functions of a plugin module, or of a rollfile, are registered without a hook.

    @verifier
    def same_text(response: str, reference: str, *, strip: bool = True) -> bool: ...

    @reward(name="short", summary="1 for at most `limit` characters")
    def short_answer(rollout: Rollout, *, limit: int = 100) -> float: ...
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

from roll_core.errors import PluginError
from roll_core.plugin.component import Component, Permission, Scope
from roll_core.plugin.lift import FunctionFactory

Target = TypeVar("Target", bound=Callable[..., Any])
_MARK: Final = "__roll_declared__"


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """What hangs on a decorated function or class."""

    kind: str
    component: Component
    target: object


def declared(thing: object) -> Declared | None:
    """The declaration that was made on exactly this object (not on one it wraps or inherits from)."""
    mark = getattr(thing, "__dict__", {}).get(_MARK)
    return mark if isinstance(mark, Declared) and mark.target is thing else None


class ComponentDecorator:
    """Turns a function, or a class, into a component of one kind. Works with and without arguments."""

    def __init__(self, kind: str, scope: Scope = "driver") -> None:
        self.kind = kind
        self.scope = scope

    @overload
    def __call__(self, target: Target, /) -> Target: ...

    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        summary: str | None = None,
        source: str = "",
        permissions: Iterable[Permission] = (),
        requires: Iterable[str] = (),
    ) -> Callable[[Target], Target]: ...

    def __call__(
        self,
        target: Target | None = None,
        /,
        *,
        name: str | None = None,
        summary: str | None = None,
        source: str = "",
        permissions: Iterable[Permission] = (),
        requires: Iterable[str] = (),
    ) -> Target | Callable[[Target], Target]:
        """Declare the decorated function.

        Args:
            target: the function or class (given by Python when there are no arguments).
            name: component name; the function's name (a class's in snake case) without it.
            summary: one line; the first line of the docstring without it.
            source: paper or URL that it follows.
            permissions: what it needs beyond computing.
            requires: columns a function reads, such as `values` (a class has a method `requirements`).

        Raises:
            PluginError: the function's parameters do not fit the kind, or the name is malformed.
        """

        def declare(thing: Target) -> Target:
            factory = function_factory(self.kind, thing, frozenset(requires))
            component = Component(
                name or component_name(thing),
                factory,
                summary=(inspect.getdoc(thing) or "").partition("\n")[0] if summary is None else summary,
                source=source,
                permissions=frozenset(permissions),
                scope=self.scope,
            )
            setattr(thing, _MARK, Declared(self.kind, component, thing))
            return thing

        if target is None:
            return declare
        if not callable(target):
            raise PluginError(f"only functions and classes can be components, not {target!r}; name goes in name=...")
        return declare(target)


verifier: Final = ComponentDecorator("verifiers")
"""Declare `f(response, reference, *, options) -> Verdict | bool | float` (sync or async) as a verifier."""
reward: Final = ComponentDecorator("rewards")
"""Declare `f(rollout, *, options) -> float | None` or `f(group, *, options) -> list` as a reward."""
filter: Final = ComponentDecorator("filters")  # the word the config uses
"""Declare `f(group, *, options) -> bool | str | None` as a filter: True or None admits, False or a reason drops."""
advantage: Final = ComponentDecorator("advantages")
"""Declare `f(inputs, *, options) -> [N]` as an advantage estimator."""
policy_loss: Final = ComponentDecorator("policy_losses", scope="rank")
"""Declare `f(inputs, *, options) -> [n]` as a policy loss."""


def function_factory(kind: str, target: Callable[..., Any], requires: frozenset[str] = frozenset()) -> Any:
    """The factory of a component that is given as a class (itself) or as a plain function (lifted)."""
    return target if inspect.isclass(target) else FunctionFactory(kind, target, requires)


def component_name(target: object) -> str:
    """The component name of a function, class or callable object, in snake case."""
    while isinstance(target, functools.partial):
        target = target.func
    raw = getattr(target, "__name__", None) or type(target).__name__
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", raw.strip("_<>")).lower()
    return re.sub(r"[^a-z0-9]+", "_", snake).strip("_") or "unnamed"
