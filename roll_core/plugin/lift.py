"""Plain functions as components: a function of (response, reference) becomes a `Verifier`, and so on.

The options of such a component are the keyword-only parameters of its function. Lifted objects pickle when their
function does.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roll_core.errors import PluginError
from roll_core.plugin.component import model_of_signature
from roll_core.plugin.hookspecs import SINGULAR

if TYPE_CHECKING:
    import pydantic

    from roll_core.types import Prompt, Rollout, RolloutGroup, Verdict

_ON_CALL: dict[str, frozenset[str]] = {"verifiers": frozenset({"prompt", "rollout"})}
"""Parameters that come with every call, hence are no options."""

_ARITY = {"verifiers": 2, "rewards": 1, "filters": 1, "advantages": 1, "policy_losses": 1}
LIFTED: frozenset[str] = frozenset(_ARITY)
"""Kinds whose contract a plain function can fulfil; a function of another kind is a factory."""


@dataclass(frozen=True, slots=True)
class FunctionFactory:
    """Makes the component of `kind` that a plain function stands for.

    Raises:
        PluginError: the function's parameters do not fit the kind.
    """

    kind: str
    function: Callable[..., Any]
    requires: frozenset[str] = frozenset()
    """Columns the component reads (`contracts.requirements_of`)."""

    def __post_init__(self) -> None:
        _check_shape(self.kind, self.function)

    def __call__(self, **options: Any) -> Any:
        """Bind the options."""
        if self.kind == "verifiers":
            return FunctionVerifier(self.function, options)
        if self.kind == "rewards":
            return FunctionReward(self.function, options, _takes(self.function) == "group")
        if self.kind == "filters":
            return FunctionFilter(self.function, options)
        return BoundFunction(self.function, options, self.requires) if options or self.requires else self.function

    @property
    def __signature__(self) -> inspect.Signature:
        """The options as keyword-only parameters."""
        skipped = _ON_CALL.get(self.kind, frozenset())
        parameters = inspect.signature(self.function).parameters.values()
        return inspect.Signature([p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in skipped])

    def config_model(self, name: str) -> type[pydantic.BaseModel]:
        """The pydantic model of the options."""
        return model_of_signature(self.function, name, _ON_CALL.get(self.kind, frozenset()), keyword_only=True)


@dataclass(frozen=True, slots=True)
class FunctionVerifier:
    """A `Verifier` made of `function(response, reference, **options)`; it may be async.

    `prompt` and `rollout` are passed where the function names them.
    """

    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function: many then run at once in the driver's event loop."""
        return inspect.iscoroutinefunction(self.function)

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        **options: Any,
    ) -> Verdict | Awaitable[Verdict]:
        """Call the function and turn its result into a verdict (`as_verdict`)."""
        parameters = inspect.signature(self.function).parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        on_call = {"prompt": prompt, "rollout": rollout}
        extra = {name: value for name, value in on_call.items() if takes_all or name in parameters}
        result = self.function(response, reference, **{**self.options, **options, **extra})
        return _awaited(result) if inspect.isawaitable(result) else as_verdict(result)


@dataclass(frozen=True, slots=True)
class FunctionReward:
    """A `RewardFunction` made of a function of one rollout, or of a whole group."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    of_group: bool

    def __call__(self, group: RolloutGroup) -> Sequence[float | None]:
        """One value per rollout of the group; None for a rollout whose verdict carries no score."""
        if self.of_group:
            values: Sequence[float | None] = self.function(group, **self.options)
            return values
        return [
            None if r.verdict is not None and not r.is_scored else self.function(r, **self.options)
            for r in group.rollouts
        ]


@dataclass(frozen=True, slots=True)
class FunctionFilter:
    """A `Filter` made of a function of a group: True or None admits, False or a reason (a string) drops."""

    function: Callable[..., Any]
    options: Mapping[str, Any]

    def reject(self, group: RolloutGroup) -> str | None:
        """Ask the function.

        Raises:
            TypeError: it returned something else.
        """
        import numpy as np

        result = self.function(group, **self.options)
        name = getattr(self.function, "__name__", "filter")
        if result is None or isinstance(result, str):
            return result
        if isinstance(result, bool | np.bool_):
            return None if result else name
        raise TypeError(f"filter '{name}' returned {result!r}; return True or None to admit, False or a reason to drop")


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A function of one argument with its options bound, and the columns it reads."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    requires: frozenset[str] = frozenset()

    def __call__(self, inputs: Any) -> Any:
        """Call the function."""
        return self.function(inputs, **self.options)

    def requirements(self) -> frozenset[str]:
        """Columns that must be there."""
        return self.requires


def as_verdict(result: Any) -> Verdict:
    """Turn what a verifier returned into a verdict.

    A `Verdict` stays; True and 1.0 are correct; False and a number in [0, 1) are incorrect with that score. Anything
    else (NaN, a number outside [0, 1], None) is an error of the verifier: no score.
    """
    import numpy as np

    from roll_core.types import Verdict

    if isinstance(result, Verdict):
        return result
    if isinstance(result, bool | np.bool_):
        return Verdict.correct() if result else Verdict.incorrect()
    if isinstance(result, numbers.Real):
        score = float(result)
        if not math.isfinite(score) or not 0.0 <= score <= 1.0:
            return Verdict.error(f"the verifier returned {score!r}, not a score in [0, 1]", detail="bad_score")
        return Verdict.correct() if score == 1.0 else Verdict.incorrect(score=score)
    return Verdict.error(
        f"the verifier returned {type(result).__name__}, not a Verdict, bool or number in [0, 1]", detail="bad_type"
    )


async def _awaited(result: Awaitable[Any]) -> Verdict:
    return as_verdict(await result)


def _takes(function: Callable[..., Any]) -> str:
    """Whether a reward function takes a "rollout" or a "group", by its first parameter's name or annotation."""
    first = next(iter(inspect.signature(function).parameters.values()))
    annotation = first.annotation if isinstance(first.annotation, str) else getattr(first.annotation, "__name__", "")
    for word, type_name in (("rollout", "Rollout"), ("group", "RolloutGroup")):
        if first.name == word or annotation.rpartition(".")[2] == type_name:
            return word
    raise PluginError(
        f"reward function '{getattr(function, '__name__', function)}': name its first parameter 'rollout' (called once "
        f"per rollout) or 'group' (called once per group), not '{first.name}'"
    )


def _check_shape(kind: str, function: Callable[..., Any]) -> None:
    name = getattr(function, "__name__", repr(function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise PluginError(f"{SINGULAR[kind]} function '{name}' has no signature to read: {error}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < _ARITY[kind] and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        wanted = "(response, reference)" if kind == "verifiers" else "one argument"
        raise PluginError(f"{SINGULAR[kind]} function '{name}' must take {wanted}")
    on_call = _ON_CALL.get(kind, frozenset())
    for parameter in positional[_ARITY[kind] :]:
        if parameter.default is parameter.empty and parameter.name not in on_call:
            raise PluginError(
                f"{SINGULAR[kind]} function '{name}': parameter '{parameter.name}' would never be given; put it behind "
                "'*' to make it an option"
            )
    if kind == "rewards":
        _takes(function)
