"""`Component`: the declaration of one thing a user can choose, and how it is built.

Nothing is imported until a component is resolved, so declaring one costs nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from roll_core.errors import ConfigError, PluginError

if TYPE_CHECKING:
    import pydantic

Permission = Literal["network", "subprocess", "code-exec", "gpu", "files"]
Scope = Literal["driver", "worker", "rank"]

API_VERSION = 1
"""Version of the component contracts; a component declares the one it was written for."""

_NAME = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Component:
    """Declares one component.

    Args:
        name: lower snake case; what `use:` in a config says. Models and commands may hold dots and dashes too.
        factory: "module:attr" or a callable; called with the config values as keyword arguments, and with those of
            the engine's values (`contracts.CONTEXT`) that its signature names.
        config: "module:Model" or a pydantic model class for the options. None derives one from the factory's
            signature (every parameter needs an annotation).
        summary: one line for lists and the catalogue.
        source: paper or URL that the component follows.
        permissions: what it needs beyond computing.
        scope: where it lives: once in the driver, in workers, or on every training rank.
        api: version of the contracts it was written for.
        since: the distribution's version that first had it.

    Raises:
        PluginError: the name is malformed, or `api` is not this core's.
    """

    name: str
    factory: str | Callable[..., Any]
    config: str | type[pydantic.BaseModel] | None = None
    summary: str = ""
    source: str = ""
    permissions: frozenset[Permission] = frozenset()
    scope: Scope = "driver"
    api: int = API_VERSION
    since: str = "0.1"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PluginError(f"component name '{self.name}' is not lower snake case")
        if self.api != API_VERSION:
            raise PluginError(f"component '{self.name}' was written for api {self.api}, this core has {API_VERSION}")

    def load_factory(self) -> Callable[..., Any]:
        """Import and return the factory."""
        loaded = load_object(self.factory) if isinstance(self.factory, str) else self.factory
        if not callable(loaded):
            raise PluginError(f"factory of component '{self.name}' is not callable: {loaded!r}")
        return loaded

    def config_model(self, context: Iterable[str] = ()) -> type[pydantic.BaseModel]:
        """The pydantic model of the options; unknown options are errors.

        A factory may bring its own through a method `config_model(name)` (lifted functions do).

        Args:
            context: names of factory parameters that the engine supplies, hence no options.
        """
        import pydantic

        if self.config is None:
            factory = self.load_factory()
            own = None if inspect.isclass(factory) else getattr(factory, "config_model", None)
            model = own(self.name) if own is not None else model_of_signature(factory, self.name, frozenset(context))
        else:
            model = load_object(self.config) if isinstance(self.config, str) else self.config
        if not (inspect.isclass(model) and issubclass(model, pydantic.BaseModel)):
            raise PluginError(f"config of component '{self.name}' is not a pydantic model: {model!r}")
        return model

    def create(self, values: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """Call the factory with validated `values` and what it asks for of `context`."""
        factory = self.load_factory()
        return factory(**values, **_accepted(factory, context))

    def build(self, options: Mapping[str, Any], **context: Any) -> Any:
        """Validate `options` and build the component.

        Args:
            options: what the config says.
            context: what the engine supplies to factories of this kind (`contracts.CONTEXT`).

        Raises:
            pydantic.ValidationError: options do not fit the config model.
        """
        config = self.config_model(context).model_validate(dict(options))
        return self.create({name: getattr(config, name) for name in type(config).model_fields}, context)


def model_of_signature(
    factory: Callable[..., Any], name: str, context: Collection[str] = frozenset(), *, keyword_only: bool = False
) -> type[pydantic.BaseModel]:
    """Derive a strict pydantic model from a factory's parameters, those in `context` left out.

    What the factory's source says about a parameter becomes the description of its option.

    Args:
        factory: a class, function, partial or callable object.
        name: the component's name, for messages.
        context: parameters that are no options.
        keyword_only: leave out everything that is not keyword-only too.

    Raises:
        ConfigError: a parameter has no annotation that can be evaluated, or is variadic.
    """
    import pydantic

    from roll_core.plugin.option_docs import option_docs

    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot derive a config for component '{name}': {error}; declare config=...") from error
    parameters = [
        p
        for p in signature.parameters.values()
        if p.name not in context and (not keyword_only or p.kind is p.KEYWORD_ONLY)
    ]
    hints = _hints(factory, name, [p.name for p in parameters])
    texts = option_docs(factory)
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name not in hints:
            raise ConfigError(
                f"cannot derive a config for component '{name}': parameter '{parameter.name}' of its factory needs "
                "an annotation and must not be variadic; or declare config=..."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (
            hints[parameter.name],
            pydantic.Field(default, description=texts.get(parameter.name)),
        )
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    return pydantic.create_model(f"{name}_config", __config__=config, **fields)


def load_object(path: str) -> Any:
    """Import what "module:attr" names.

    Raises:
        PluginError: the path is malformed, or the module lacks the attribute.
        ImportError: the module cannot be imported.
    """
    module_name, _, attribute = path.partition(":")
    if not attribute:
        raise PluginError(f"'{path}' is not of the form 'module:attribute'")
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise PluginError(f"module '{module_name}' has no attribute '{attribute}'") from None


def _accepted(factory: Callable[..., Any], context: Mapping[str, Any]) -> dict[str, Any]:
    if not context:
        return {}
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(context)
    return {name: value for name, value in context.items() if name in parameters}


def _hints(factory: Callable[..., Any], name: str, wanted: Collection[str]) -> dict[str, Any]:
    """Evaluate only the annotations that are options: others may name imports that exist for type checkers alone."""
    target: Any = factory
    while isinstance(target, functools.partial):
        target = target.func
    try:
        if dataclasses.is_dataclass(target):
            return get_type_hints(target, include_extras=True)
        if inspect.isclass(target):
            target = target.__init__
        elif not inspect.isroutine(target):
            target = type(target).__call__
        target = inspect.unwrap(target)
        written = {k: v for k, v in getattr(target, "__annotations__", {}).items() if k in wanted}
        return get_type_hints(
            SimpleNamespace(__annotations__=written), getattr(target, "__globals__", {}), include_extras=True
        )
    except NameError as error:
        raise ConfigError(
            f"cannot derive a config for component '{name}': an annotation of its factory cannot be evaluated "
            f"({error}); import the name at run time, or declare config=..."
        ) from error
