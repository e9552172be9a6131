"""What one step computes, derived from what its components read.

No algorithm is named here: a reference model takes part if and only if something reads `ref_logprobs`, a critic if
something reads `values`, a greedy pass if something reads `greedy_rewards`.
"""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.errors import ConfigError, near_match

TEACHER_PREFIX = "logprobs@"
STRATEGY_COLUMNS = frozenset({"old_logprobs", "ref_logprobs", "values", "entropy"})
"""Columns a train strategy computes by a forward pass."""
KNOWN_COLUMNS = STRATEGY_COLUMNS | {"rollout_logprobs", "greedy_rewards"}


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a step with the columns it reads and writes."""

    name: str
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The plan of a step.

    Args:
        required: every column that a component of the run reads.
    """

    required: frozenset[str]

    def __post_init__(self) -> None:
        for name in sorted(self.required):
            if name not in KNOWN_COLUMNS and not name.startswith(TEACHER_PREFIX):
                raise ConfigError(
                    f"nothing computes the column '{name}' that a component reads{near_match(name, KNOWN_COLUMNS)} "
                    f"known: {', '.join(sorted(KNOWN_COLUMNS))}, {TEACHER_PREFIX}<model>"
                )

    @property
    def strategy_columns(self) -> frozenset[str]:
        """Columns that need a forward pass of the train strategy before credit."""
        return frozenset(n for n in self.required if n in STRATEGY_COLUMNS or n.startswith(TEACHER_PREFIX))

    @property
    def needs_reference(self) -> bool:
        """Whether the frozen reference model is loaded."""
        return "ref_logprobs" in self.required

    @property
    def needs_critic(self) -> bool:
        """Whether a critic is loaded and trained."""
        return "values" in self.required

    @property
    def needs_greedy(self) -> bool:
        """Whether each prompt also gets a greedy answer."""
        return "greedy_rewards" in self.required

    @property
    def teachers(self) -> frozenset[str]:
        """Names of the teacher models."""
        return frozenset(n.removeprefix(TEACHER_PREFIX) for n in self.required if n.startswith(TEACHER_PREFIX))

    def stages(self) -> tuple[Stage, ...]:
        """The stages of a step in order; a stage without anything to write is left out."""
        tokens = frozenset({"token_ids", "response_mask", "rollout_logprobs"})
        greedy = frozenset({"greedy_rewards"}) if self.needs_greedy else frozenset[str]()
        stages = (
            Stage("rollout", frozenset(), tokens | greedy),
            Stage("score", tokens, frozenset({"scores", "rewards"})),
            Stage("columns", tokens, self.strategy_columns),
            Stage("credit", frozenset({"rewards"}) | self.required, frozenset({"advantages", "weights"})),
            Stage("update", tokens | {"advantages", "weights"}, frozenset({"policy"})),
            Stage("sync", frozenset({"policy"}), frozenset({"policy_version"})),
        )
        return tuple(s for s in stages if s.writes)

    def as_dict(self) -> dict[str, list[str]]:
        """What a run loads and computes, for people: models, columns by forward passes, stages in order."""
        optional = (("reference", self.needs_reference), ("critic", self.needs_critic))
        models = ["policy", *(name for name, is_there in optional if is_there), *sorted(self.teachers)]
        return {
            "models": models,
            "columns": sorted(self.strategy_columns),
            "stages": [stage.name for stage in self.stages()],
        }
