"""The hooks a plugin may implement. Two families, never mixed.

*Declaring* hooks `roll_register_<kind>()` return a list of `Component`. *Observing* hooks say what happened and
return None; an exception in one is logged with the plugin's name and counted, and raised under strict. There are no
deciding and no transforming hooks: what changes a run is named in its config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from roll_core.contracts import RunInfo
    from roll_core.plugin.component import Component
    from roll_core.types import Batch, RolloutGroup

hookspec = pluggy.HookspecMarker("roll")
hookimpl = pluggy.HookimplMarker("roll")


class DeclaringHooks:
    """What a plugin offers, one hook per kind."""

    @hookspec
    def roll_register_verifiers(self) -> list[Component]:  # type: ignore[empty-body]  # a spec has no body
        """Judges of one response against a reference (`contracts.Verifier`)."""

    @hookspec
    def roll_register_rewards(self) -> list[Component]:  # type: ignore[empty-body]
        """Shapers of numbers (`contracts.RewardFunction`)."""

    @hookspec
    def roll_register_filters(self) -> list[Component]:  # type: ignore[empty-body]
        """Admission of groups (`contracts.Filter`)."""

    @hookspec
    def roll_register_mixers(self) -> list[Component]:  # type: ignore[empty-body]
        """Choice of domain per prompt (`contracts.Mixer`)."""

    @hookspec
    def roll_register_sources(self) -> list[Component]:  # type: ignore[empty-body]
        """Rows of data (`contracts.Source`)."""

    @hookspec
    def roll_register_environments(self) -> list[Component]:  # type: ignore[empty-body]
        """Multi-turn environments (`contracts.Environment`)."""

    @hookspec
    def roll_register_advantages(self) -> list[Component]:  # type: ignore[empty-body]
        """Advantage estimators (`contracts.AdvantageEstimator`)."""

    @hookspec
    def roll_register_policy_losses(self) -> list[Component]:  # type: ignore[empty-body]
        """Per-token policy losses (`contracts.PolicyLoss`)."""

    @hookspec
    def roll_register_rollout_backends(self) -> list[Component]:  # type: ignore[empty-body]
        """Token generators (`contracts.RolloutBackend`)."""

    @hookspec
    def roll_register_train_strategies(self) -> list[Component]:  # type: ignore[empty-body]
        """Owners of forward, backward and optimiser (`contracts.TrainStrategy`)."""

    @hookspec
    def roll_register_trackers(self) -> list[Component]:  # type: ignore[empty-body]
        """Receivers of metrics (`contracts.Tracker`)."""

    @hookspec
    def roll_register_models(self) -> list[Component]:  # type: ignore[empty-body]
        """Model names that resolve to local folders (`contracts.ModelResolver`); the name is the model's."""

    @hookspec
    def roll_register_commands(self) -> list[Component]:  # type: ignore[empty-body]
        """Sub-commands of `roll`: the factory returns a `click.Command`."""


class ObservingHooks:
    """What happened."""

    @hookspec(historic=True)
    def roll_configure(self, config: Mapping[str, Any]) -> None:
        """The resolved config of a run, before anything loads. Reaches plugins that are registered later too."""

    @hookspec
    def roll_on_run_start(self, run: RunInfo) -> None:
        """A run starts, or goes on from a checkpoint."""

    @hookspec
    def roll_on_groups_scored(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Every group of a step is scored; admitted and dropped ones alike."""

    @hookspec
    def roll_on_batch_ready(self, step: int, batch: Batch) -> None:
        """The batch has its columns, advantages and weights; the update comes next."""

    @hookspec
    def roll_on_step_end(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step has committed."""

    @hookspec
    def roll_on_checkpoint_saved(self, step: int, folder: Path) -> None:
        """A checkpoint is complete on disk."""

    @hookspec
    def roll_on_run_end(self, status: str) -> None:
        """The run is over: "finished", "failed" or "interrupted"."""


_REGISTER = "roll_register_"

DECLARING: dict[str, str] = {name.removeprefix(_REGISTER): name for name in vars(DeclaringHooks) if _REGISTER in name}
"""Declaring hook of each kind, in the order of `contracts.KINDS`."""

OBSERVING: tuple[str, ...] = tuple(name for name in vars(ObservingHooks) if name.startswith("roll_"))
"""Names of the observing hooks."""

SINGULAR: dict[str, str] = {
    "verifiers": "verifier",
    "rewards": "reward",
    "filters": "filter",
    "mixers": "mixer",
    "sources": "source",
    "environments": "environment",
    "advantages": "advantage",
    "policy_losses": "policy loss",
    "rollout_backends": "rollout backend",
    "train_strategies": "train strategy",
    "trackers": "tracker",
    "models": "model",
    "commands": "command",
}
"""How messages call one component of a kind."""
