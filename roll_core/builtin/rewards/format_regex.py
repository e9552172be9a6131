"""A reward for responses that match a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_core.errors import ConfigError
from roll_core.types import RolloutGroup


@dataclass(frozen=True, slots=True)
class FormatRegex:
    """1 when the response matches `pattern`, else 0.

    The pattern runs in the driver on whatever the policy wrote, so it should not be able to backtrack without end
    (nested repetitions such as `(a+)+`).

    Args:
        pattern: a Python regular expression; flags go inside (`(?s)` lets `.` match newlines).
        full: the whole response must match, instead of any part of it.

    Raises:
        ConfigError: the pattern is not a regular expression.
    """

    pattern: str
    full: bool = False

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(f"reward format_regex: pattern {self.pattern!r} does not compile: {error}") from error

    def __call__(self, group: RolloutGroup) -> list[float | None]:
        """One value per rollout, 0 or 1."""
        match = re.fullmatch if self.full else re.search
        return [float(match(self.pattern, rollout.response) is not None) for rollout in group.rollouts]
