"""The `ratio` mixer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.contracts import Mixer
from roll_core.errors import ConfigError
from roll_core.types import RolloutGroup
from roll_mixer_ratio.scheduler import Scheduler
from roll_mixer_ratio.shares import Schedule, SchedulePoint, Shares, shares_of_sizes, shares_of_weights


class RatioMixer(Mixer):
    """Draws domains by fixed, temperature or scheduled shares, exactly instead of at random.

    With fixed shares p, after any number n of draws, abs(drawn[c] - n * p[c]) < 1 for every domain c. Without options,
    all domains have equal shares.

    Args:
        weights: relative weight of every domain.
        temperature: shares proportional to rows ** (1 / temperature).
        schedule: weights at given steps, linear in between.
        domains: the run's domains.
        sizes: rows of each domain.
        seed: the run's seed; only ties depend on it.
        total_steps: steps of the run; unused, shares are a function of the step alone.

    Raises:
        ConfigError: more than one of weights, temperature and schedule, or bad values in one.

    Source: Baruah, Cohen, Plaxton & Varvel 1996 (proportionate progress); Tijdeman 1980 (chairman assignment).
    Deviates: shares may change between draws; what a domain is owed or owes is then kept.
    """

    def __init__(
        self,
        *,
        weights: dict[str, float] | None = None,
        temperature: float | None = None,
        schedule: list[SchedulePoint] | None = None,
        domains: Sequence[str],
        sizes: Mapping[str, int],
        seed: int,
        total_steps: int,
    ) -> None:
        del total_steps
        options = {"weights": weights, "temperature": temperature, "schedule": schedule}
        given = [name for name, value in options.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(
                f"mixer 'ratio' takes one of weights, temperature and schedule, got {' and '.join(given)}"
            )
        if not domains:
            raise ConfigError("mixer 'ratio' was given no domains")
        self._domains = tuple(domains)
        if schedule is not None:
            self._schedule = Schedule(schedule, self._domains)
        else:
            if temperature is not None:
                shares = shares_of_sizes(temperature, sizes, self._domains)
            else:
                equal = dict.fromkeys(self._domains, 1.0)
                shares = shares_of_weights(equal if weights is None else weights, self._domains, "mixer.weights")
            self._schedule = Schedule([SchedulePoint(0, shares)], self._domains)
        self._scheduler = Scheduler(self._domains, seed=seed)

    def weights(self, step: int) -> Shares:
        """Target share of each domain at `step`."""
        return dict(self._schedule.at(step))

    def draw(self, count: int, *, step: int, available: Sequence[str]) -> list[str]:
        """Name the domain of each of the next `count` prompts.

        Shares are normalised over the `available` domains.

        Raises:
            ConfigError: every available domain has weight 0 at this step.
            ValueError: `count` is negative, or an available domain is unknown.
        """
        if count < 0:
            raise ValueError(f"cannot draw {count} prompts")
        foreign = [name for name in available if name not in self._domains]
        if foreign:
            raise ValueError(f"mixer 'ratio' does not know {', '.join(foreign)}; it was built for {self._domains}")
        shares = self._schedule.at(step)
        active = {name: shares[name] for name in self._domains if name in set(available) and shares[name] > 0}
        if not active:
            raise ConfigError(
                f"at step {step} no domain with a weight above 0 is left (available: {', '.join(available)}); "
                "the others have ended: set 'repeat: true' for their data, or give the ones left a weight"
            )
        total = sum(active.values())
        normalised = {name: share / total for name, share in active.items()}
        return [self._scheduler.draw(normalised) for _ in range(count)]

    def observe(self, groups: Sequence[RolloutGroup]) -> None:
        """Outcomes change nothing."""

    def state_dict(self) -> dict[str, Any]:
        """What each domain is owed, and the number of draws (JSON)."""
        return self._scheduler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; domains that were added since are owed nothing.

        Raises:
            ConfigError: the state knows a domain that this mixer lacks.
        """
        self._scheduler.load_state_dict(state)
