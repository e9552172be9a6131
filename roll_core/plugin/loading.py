"""What the host asks of one loaded plugin: only known hooks, and lists of well-formed components."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pluggy

from roll_core.errors import PluginError, near_match
from roll_core.plugin.component import Component
from roll_core.plugin.decorators import declared
from roll_core.plugin.hookspecs import DECLARING, OBSERVING, SINGULAR, DeclaringHooks, ObservingHooks

HOOKS: frozenset[str] = frozenset((*DECLARING.values(), *OBSERVING))
_RESERVED = ("roll_register_", "roll_on_")
_FREE_NAMES = frozenset({"models", "commands"})
"""Kinds whose names need not be identifiers."""


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows every hook."""
    manager = pluggy.PluginManager("roll")
    manager.add_hookspecs(DeclaringHooks)
    manager.add_hookspecs(ObservingHooks)
    return manager


def check_hooks(manager: pluggy.PluginManager, plugin: object) -> None:
    """Refuse hooks that pluggy would accept and never call.

    Raises:
        PluginError: a hook's name is unknown (pluggy registers misspelt ones silently), a function is named like a hook
            but not marked as one, or a hook is a coroutine or a wrapper.
    """
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            if (attribute in HOOKS or attribute.startswith(_RESERVED)) and callable(getattr(plugin, attribute)):
                raise PluginError(f"function '{attribute}' is named like a hook but not marked with @hookimpl")
            continue
        name = options.get("specname") or attribute
        if name not in HOOKS:
            if options.get("optionalhook"):
                continue
            raise PluginError(f"unknown hook '{name}'{near_match(name, HOOKS)}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise PluginError(f"hook '{name}' is a wrapper; declaring and observing hooks cannot be wrapped")
        if inspect.iscoroutinefunction(getattr(plugin, attribute)):
            raise PluginError(f"hook '{name}' is async; hooks are called synchronously")


def implementations(manager: pluggy.PluginManager, hook: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(plugin's name, function) of each implementation of a hook, in calling order.

    Implementations are called one by one rather than through pluggy's relay, which stops at the first exception. The
    function takes the hook's keyword arguments and passes on those that the implementation names.
    """
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    for found in reversed(caller.get_hookimpls()):
        yield found.plugin_name, _subset(found.function, found.argnames)


def observed(manager: pluggy.PluginManager, plugin: object) -> tuple[str, ...]:
    """Names of the observing hooks that a registered plugin implements."""
    return tuple(sorted({caller.name for caller in manager.get_hookcallers(plugin) or ()} & set(OBSERVING)))


def declarations(
    manager: pluggy.PluginManager, plugin: object, name: str
) -> tuple[list[tuple[str, Component]], list[Exception]]:
    """Ask one registered plugin for everything it declares.

    Every hook is asked even when another raised, so that a failed plugin can say what it would have offered.

    Returns:
        (kind, component) pairs, and the exceptions that occurred.
    """
    found: list[tuple[str, Component]] = []
    errors: list[Exception] = []
    for kind, hook in DECLARING.items():
        try:
            offered = _declared_by_mark(plugin, kind)
            for owner, function in implementations(manager, hook):
                if owner == name:
                    offered.extend(_checked(kind, hook, function()))
            found.extend((kind, component) for component in _unique(kind, offered))
        except Exception as error:  # noqa: BLE001  # a plugin may raise anything; it is reported as that plugin's
            errors.append(error)
    return found, errors


def _subset(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    return lambda **arguments: function(**{name: arguments[name] for name in names})


def _declared_by_mark(plugin: object, kind: str) -> list[Component]:
    marks = [declared(thing) for thing in list(vars(plugin).values())] if hasattr(plugin, "__dict__") else []
    return [mark.component for mark in marks if mark is not None and mark.kind == kind]


def _checked(kind: str, hook: str, offered: object) -> list[Component]:
    if not isinstance(offered, list | tuple):
        raise PluginError(f"{hook} returned {type(offered).__name__}, not a list of Component")
    components = []
    for item in offered:
        mark = declared(item)
        if mark is not None and mark.kind != kind:
            raise PluginError(f"{hook} returned '{mark.component.name}', which is decorated as {SINGULAR[mark.kind]}")
        component = mark.component if mark is not None else item
        if not isinstance(component, Component):
            raise PluginError(f"{hook} returned a list with {item!r}, which is no Component")
        components.append(component)
    return components


def _unique(kind: str, offered: list[Component]) -> list[Component]:
    """Drop one component listed twice (by decorator and hook, or under two names); refuse two of one name."""
    by_name: dict[str, Component] = {}
    for component in offered:
        if kind not in _FREE_NAMES and not component.name.isidentifier():
            raise PluginError(f"{SINGULAR[kind]} name '{component.name}' is not lower snake case")
        if by_name.setdefault(component.name, component) is not component:
            raise PluginError(f"two {kind} are called '{component.name}'")
    return list(by_name.values())
