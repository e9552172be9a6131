"""Target shares: from weights, from set sizes, or from a schedule over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from roll_core.errors import ConfigError, unknown_name

Shares = dict[str, float]
"""Share of each domain; non-negative, sums to 1."""


@dataclass(frozen=True, slots=True)
class SchedulePoint:
    """From `step` on, `weights` hold (or are moved away from, when a later point follows)."""

    step: Annotated[int, Field(ge=0)]
    weights: dict[str, float]

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


def shares_of_weights(weights: Mapping[str, float], domains: Sequence[str], place: str) -> Shares:
    """Normalise weights that name every domain.

    Args:
        weights: one finite, non-negative number per domain.
        domains: the run's domains.
        place: where the weights stand, for errors.

    Raises:
        UnknownNameError: a weight for a domain that does not exist.
        ConfigError: a domain has no weight, a weight is negative or not finite, or all are 0.
    """
    for name, weight in weights.items():
        if name not in domains:
            raise unknown_name("domain", name, domains, f"{place}.{name}")
        if not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"{place}.{name} is {weight}; a weight is a finite number of at least 0")
    missing = [name for name in domains if name not in weights]
    if missing:
        lines = ", ".join(f"'{name}: 0'" for name in missing)
        raise ConfigError(f"{place} names no weight for {', '.join(missing)}; add {lines} to leave it out on purpose")
    largest = max(weights.values())
    if largest == 0:
        raise ConfigError(f"{place}: all weights are 0, so no prompt could be drawn; give one domain a positive weight")
    scaled = {name: weights[name] / largest for name in domains}  # so that their sum cannot overflow
    total = math.fsum(scaled.values())
    return {name: weight / total for name, weight in scaled.items()}


def shares_of_sizes(temperature: float, sizes: Mapping[str, int], domains: Sequence[str]) -> Shares:
    """Shares proportional to n ** (1 / temperature), n being a domain's rows.

    1 follows the sizes, infinity is equal shares.

    Raises:
        ConfigError: the temperature is not positive, or a size is unknown or 0.
    """
    if not temperature > 0:
        raise ConfigError(f"mixer.temperature is {temperature}; it must be above 0")
    unsized = [name for name in domains if sizes.get(name, 0) < 1]
    if unsized:
        raise ConfigError(
            f"mixer.temperature needs the number of rows of every domain, unknown or 0 for: {', '.join(unsized)}"
        )
    # relative to the largest set, so that a low temperature cannot overflow
    logs = {name: math.log(sizes[name]) / temperature for name in domains}
    top = max(logs.values())
    scaled = {name: math.exp(value - top) for name, value in logs.items()}
    total = math.fsum(scaled.values())
    return {name: value / total for name, value in scaled.items()}


class Schedule:
    """Shares that move linearly from point to point, and hold before the first and after the last.

    Args:
        points: by increasing step.
        domains: the run's domains.

    Raises:
        ConfigError: no points, steps that do not increase, or bad weights.
    """

    def __init__(self, points: Sequence[SchedulePoint], domains: Sequence[str]) -> None:
        if not points:
            raise ConfigError("mixer.schedule is empty; give at least one {step, weights}")
        self._steps = [point.step for point in points]
        if any(later <= earlier for earlier, later in zip(self._steps, self._steps[1:], strict=False)):
            raise ConfigError(f"mixer.schedule: steps must increase, got {self._steps}")
        self._shares = [
            shares_of_weights(point.weights, domains, f"mixer.schedule[{i}].weights") for i, point in enumerate(points)
        ]

    def at(self, step: int) -> Shares:
        """Shares at `step`."""
        after = next((i for i, known in enumerate(self._steps) if known > step), len(self._steps))
        if after in (0, len(self._steps)):
            return self._shares[max(after - 1, 0)]
        start, stop = self._steps[after - 1], self._steps[after]
        part = (step - start) / (stop - start)
        before, behind = self._shares[after - 1], self._shares[after]
        return {name: (1 - part) * before[name] + part * behind[name] for name in before}
