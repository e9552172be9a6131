"""From what a config (or a Python caller) says to a built component, with errors that name it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from roll_core.errors import ComponentError, ConfigError, RollError
from roll_core.plugin.component import Component
from roll_core.plugin.decorators import component_name, declared
from roll_core.plugin.hookspecs import SINGULAR
from roll_core.plugin.lift import LIFTED, FunctionFactory
from roll_core.plugin.validation import options_error

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """A component about to be built: where its options were written is part of every error."""

    kind: str
    component: Component
    place: str = ""

    @property
    def label(self) -> str:
        """The component, as messages call it: "verifier 'math'"."""
        return f"{SINGULAR[self.kind]} '{self.component.name}'"

    def config_model(self) -> type[pydantic.BaseModel]:
        """The model of its options.

        Raises:
            ComponentError: its code cannot be imported.
        """
        from roll_core.contracts import CONTEXT

        return self._guard(lambda: self.component.config_model(CONTEXT.get(self.kind, ())))

    def validate(self, options: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options; returns every value, defaults included.

        Raises:
            ConfigError: an option is unknown, missing or wrong.
        """
        import pydantic

        from roll_core.contracts import CONTEXT

        supplied = frozenset(CONTEXT.get(self.kind, ())) | frozenset(context)
        model = self._guard(lambda: self.component.config_model(supplied))
        try:
            config = model.model_validate(dict(options))
        except pydantic.ValidationError as error:
            raise options_error(error, model, self.label, self.place) from error
        return {name: getattr(config, name) for name in model.model_fields}

    def build(self, options: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """Check the options and call the factory.

        Raises:
            ConfigError: an option is unknown, missing or wrong.
            ComponentError: the component's code raised, or what it made does not fit its contract.
        """
        values = self.validate(options, context)
        built = self._guard(lambda: self.component.create(values, context))
        lacks = missing_members(self.kind, built)
        if lacks:
            raise ComponentError(f"{self.label}{self._where} lacks {', '.join(lacks)}, which its kind needs")
        return built

    @property
    def _where(self) -> str:
        return f" ({self.place})" if self.place else ""

    def _guard(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RollError as error:
            error.add_note(f"in {self.label}{self._where}")
            raise
        except Exception as error:
            raise ComponentError(
                f"{self.label}{self._where} could not be built: {type(error).__name__}: {error}"
            ) from error


def as_component(kind: str, use: Any) -> Component | None:
    """The component that an object passed from Python stands for; None when it is a built object to take as it is.

    A `Component`, a decorated function, a class, or a plain function qualifies.

    Raises:
        ConfigError: a function is decorated as another kind.
    """
    if isinstance(use, Component):
        return use
    mark = declared(use)
    if mark is not None:
        if mark.kind != kind:
            raise ConfigError(f"'{mark.component.name}' is decorated as {SINGULAR[mark.kind]}, not as {SINGULAR[kind]}")
        return mark.component
    if inspect.isclass(use):
        return Component(component_name(use), use)
    if inspect.isroutine(use) or isinstance(use, functools.partial) or _lacks_only_a_method(kind, use):
        return Component(component_name(use), FunctionFactory(kind, use) if kind in LIFTED else use)
    return None


def check_object(kind: str, use: Any, options: Mapping[str, Any], place: str) -> Any:
    """Take an object passed from Python as the component itself.

    Raises:
        ConfigError: it does not fit the kind's contract, or options are given beside it.
    """
    where = f" ({place})" if place else ""
    label = f"{SINGULAR[kind]} given as {type(use).__name__}"
    lacks = missing_members(kind, use)
    if lacks:
        raise ConfigError(f"{label}{where} lacks {', '.join(lacks)}, which its kind needs; got {use!r:.200}")
    if options:
        raise ConfigError(f"{label}{where} is an object already, it takes no options: {', '.join(sorted(options))}")
    return use


def _lacks_only_a_method(kind: str, use: Any) -> bool:
    """Whether a callable object (not a function) can stand for a contract that names its method otherwise."""
    return kind in LIFTED and callable(use) and bool(missing_members(kind, use))


def missing_members(kind: str, thing: object) -> list[str]:
    """Members of the kind's contract that an object lacks."""
    from roll_core import contracts

    protocol = {
        "verifiers": contracts.Verifier,
        "rewards": contracts.RewardFunction,
        "filters": contracts.Filter,
        "mixers": contracts.Mixer,
        "sources": contracts.Source,
        "environments": contracts.Environment,
        "advantages": contracts.AdvantageEstimator,
        "policy_losses": contracts.PolicyLoss,
        "rollout_backends": contracts.RolloutBackend,
        "train_strategies": contracts.TrainStrategy,
        "trackers": contracts.Tracker,
        "models": contracts.ModelResolver,
    }.get(kind)
    if protocol is None:
        return []
    public = ("__call__", "__len__", "__getitem__")
    members = [name for name in vars(protocol) if name in public or not name.startswith("_")]
    return [name for name in members if not hasattr(thing, name)]
