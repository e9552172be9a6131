"""`Credit`: the engine's one handle on algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from roll_core.config.schema import CriticConfig
from roll_core.contracts import MiniBatch
from roll_core.credit.algorithm import DomainAlgorithm, check_algorithms
from roll_core.credit.estimate import correction_column, dense_rewards, estimate, known_domains, tokens_of
from roll_core.credit.metrics import batch_metrics
from roll_core.credit.objective import Objective
from roll_core.credit.shaping import shape_overlong
from roll_core.errors import BackendError, CheckpointError
from roll_core.numerics import KLController
from roll_core.types import Batch, IndexArray, RolloutGroup

_PURPOSE = 0x6D696E69
"""Keys the random stream that divides a batch into mini-batches."""


class Credit:
    """Turns scored groups and a batch's columns into advantages and objectives.

    In a step the engine calls `shape_rewards` on the admitted groups, builds the batch, adds the columns named by
    `required_columns`, calls `advantages`, hands `mini_batches` to the strategy, and calls `observe` when the step
    commits.

    Args:
        algorithms: by domain, resolved and built.
        mini_batches: optimiser steps per pass over a batch.
        epochs: passes over a batch.
        seed: of the run.
        critic: settings of the value model; None when nothing reads `values`.

    Raises:
        ConfigError: settings contradict each other or do nothing.
    """

    def __init__(
        self,
        algorithms: Mapping[str, DomainAlgorithm],
        *,
        mini_batches: int,
        epochs: int,
        seed: int,
        critic: CriticConfig | None,
    ) -> None:
        check_algorithms(algorithms, critic)
        self._algorithms = dict(algorithms)
        self._mini_batches = mini_batches
        self._epochs = epochs
        self._seed = seed
        self._critic = critic
        self._controllers = {
            name: KLController(a.config.kl.coef, a.config.kl.adaptive.target, a.config.kl.adaptive.horizon)
            for name, a in algorithms.items()
            if a.config.kl.adaptive is not None
        }

    @property
    def kl_coefs(self) -> dict[str, float]:
        """The KL coefficient of each domain as it stands."""
        return {
            name: self._controllers[name].coef if name in self._controllers else algorithm.config.kl.coef
            for name, algorithm in self._algorithms.items()
        }

    def shape_rewards(self, groups: Iterable[RolloutGroup]) -> None:
        """Apply overlong shaping to the scored rollouts, greedy baselines included; to be called before `batch_of`.

        The penalty becomes the reward record `overlong`; with `overlong.mask` truncated answers lose their loss mask
        (they stay in their group's statistics). Calling it again changes nothing.
        """
        for group in groups:
            algorithm = self._algorithms[group.ticket.domain]
            greedy = [group.greedy] if group.greedy is not None and group.greedy.is_scored else []
            shape_overlong([*group.scored, *greedy], algorithm.config.overlong, algorithm.max_new_tokens)

    def advantages(self, batch: Batch) -> dict[str, float]:
        """Add the columns `advantages`, `correction` and, with a critic, `returns` (all [N]); return metrics.

        Reads what `required_columns` names: token columns, and `greedy_rewards` as a column of level "rollout". The
        optional token column `token_rewards` holds dense rewards.

        Raises:
            ComponentError: an estimator failed.
            KeyError: a required column is missing.
        """
        names = known_domains(batch, self._algorithms)
        token_rewards, kl = dense_rewards(batch, self._algorithms, self.kl_coefs)
        result = estimate(batch, self._algorithms, token_rewards)
        batch.add("advantages", result.advantages)
        if result.returns is not None:
            batch.add("returns", result.returns)
        batch.add("correction", correction_column(batch, self._algorithms))
        metrics = batch_metrics(batch, self._algorithms, names, kl)
        coefs = self.kl_coefs
        return metrics | {f"policy/kl_coef/{name}": coefs[name] for name in names if coefs[name] > 0}

    def mini_batches(self, batch: Batch, step: int) -> list[MiniBatch]:
        """The optimiser steps of `step`: groups are shuffled anew in each epoch and divided evenly.

        Which group goes where depends on (seed, step, epoch) alone. Mini-batches without a counted token are left out;
        with fewer groups than mini-batches there are as many as groups.
        """
        objective = Objective(batch, self._algorithms, self.kl_coefs, self._critic)
        segment_group = batch.rollout_group[batch.segment_rollout]
        out = []
        for epoch in range(self._epochs):
            for groups in self._split(np.unique(segment_group), step, epoch):
                chosen = np.isin(segment_group, groups)
                terms = objective.terms(chosen)
                if terms:
                    out.append(MiniBatch(np.flatnonzero(chosen).astype(np.int64), terms))
        return out

    def observe(self, metrics: Mapping[str, float], batch: Batch) -> None:
        """Move adaptive KL coefficients by the step's measured KL; to be called when the step commits.

        Args:
            metrics: of the whole step, those of `advantages` and of the update; `policy/kl/<domain>` is read.
            batch: the step's batch. A domain without a counted token in it keeps its coefficient.

        Raises:
            BackendError: a domain was trained on, but its KL is not among the metrics.
        """
        for name, controller in self._controllers.items():
            if not (batch.loss_mask & tokens_of(batch, [name])).any():
                continue
            key = f"policy/kl/{name}"
            if key not in metrics:
                raise BackendError(
                    f"cannot adapt the KL coefficient of domain '{name}': the update reported no '{key}'"
                )
            controller.update(metrics[key], int((batch.rollout_domain == batch.domains.index(name)).sum()))

    def state_dict(self) -> dict[str, Any]:
        """JSON-able: the adaptive KL coefficients."""
        return {"kl": {name: controller.state_dict() for name, controller in self._controllers.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Raises:
            CheckpointError: the state's adaptive domains are not those of this config.
        """
        saved = state["kl"]
        if set(saved) != set(self._controllers):
            raise CheckpointError(
                f"the checkpoint adapts the KL coefficient of {sorted(saved)}, this config that of "
                f"{sorted(self._controllers)}; resume with the config of the run"
            )
        for name, controller in self._controllers.items():
            controller.load_state_dict(saved[name])

    def _split(self, groups: IndexArray, step: int, epoch: int) -> list[IndexArray]:
        count = min(self._mini_batches, len(groups))
        if count <= 1:
            return [groups] if len(groups) else []
        order = np.random.default_rng([self._seed, _PURPOSE, step, epoch]).permutation(len(groups))
        return [np.sort(groups[part]) for part in np.array_split(order, count)]
