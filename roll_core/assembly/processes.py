"""What trains, generates and verifies: the parts of a run that may have processes and devices of their own."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from roll_core.assembly.building import Builder
from roll_core.assembly.policy import Policy
from roll_core.cluster import Executor
from roll_core.cluster.choice import executor_for
from roll_core.cluster.seats import share_devices
from roll_core.config.schema import RunConfig
from roll_core.contracts import RolloutBackend, TrainSetup, TrainStrategy
from roll_core.dataflow import Dataflow
from roll_core.errors import ConfigError
from roll_core.roles import HostedVerifierPool
from roll_core.scoring import VerdictPool, VerifierPool


class Processes:
    """See the module's text.

    Args:
        config: of the run.
        builder: builds strategy and backend.
        policy: the model that is trained.
        flow: what a step computes, and so which models are loaded beside the policy.
        total_updates: optimiser steps of the whole run.
    """

    def __init__(self, config: RunConfig, builder: Builder, policy: Policy, flow: Dataflow, total_updates: int) -> None:
        self._config = config
        self._builder = builder
        self._policy = policy
        self._flow = flow
        self._total_updates = total_updates

    @cached_property
    def executor(self) -> Executor | None:
        """Starts worker processes on the devices planned for them; None where the config keeps to one process."""
        return executor_for(self._config, self._builder.host, self._config.run_folder / "logs")

    @property
    def takes_turns(self) -> bool:
        """Whether the rollout engines give the devices they share with the trainer up while it is training.

        Raises:
            ConfigError: they should, and cannot.
        """
        is_wanted = self._config.cluster.offload and share_devices(self.executor)
        if is_wanted and not hasattr(self.backend, "sleep"):
            raise ConfigError(
                f"rollout backend '{self._config.rollout.backend.label}' cannot give up the devices it shares with the "
                "trainer; set cluster.layout: apart, or cluster.offload: false where both fit at once"
            )
        return is_wanted

    @cached_property
    def verifiers(self) -> VerdictPool:
        """What runs every domain's verifier: a pool beside the driver, or hosts with one each."""
        specs = {
            name: self._builder.host.spec(
                "verifiers", d.verifier.use, d.verifier.options, place=f"domains.{name}.verifier"
            )
            for name, d in self._config.domains.items()
        }
        scoring = self._config.scoring
        if self.executor is None or not scoring.hosts:
            return VerifierPool(specs, workers=scoring.workers, timeout_s=scoring.timeout_s)
        return HostedVerifierPool(
            specs,
            self.executor,
            hosts=scoring.hosts,
            workers=scoring.workers,
            timeout_s=scoring.timeout_s,
            host_cpus=scoring.host_cpus,
        )

    @cached_property
    def strategy(self) -> TrainStrategy:
        """Trains the policy."""
        config, flow = self._config, self._flow
        setup = TrainSetup(
            model=self._policy.folder,
            optim=config.train.optim,
            total_steps=self._total_updates,
            seed=config.seed,
            lora=config.model.lora,
            reference=self._model(config.model.reference, "model.reference") if flow.needs_reference else None,
            teachers={name: self._builder.model(name, "teacher") for name in sorted(flow.teachers)},
            critic=self._model(config.critic.path, "critic.path") if flow.needs_critic else None,
            critic_optim=config.critic.optim if flow.needs_critic else None,
        )
        strategy: TrainStrategy = self._builder.build(
            "train_strategies", config.train.strategy, "train.strategy", setup=setup, executor=self.executor
        )
        return strategy

    @cached_property
    def backend(self) -> RolloutBackend:
        """Generates tokens."""
        backend: RolloutBackend = self._builder.build(
            "rollout_backends",
            self._config.rollout.backend,
            "rollout.backend",
            model=self._policy.folder,
            seed=self._config.seed,
            executor=self.executor,
        )
        return backend

    def close(self) -> None:
        """End the processes that were started here, where no engine did it; once more does nothing."""
        built = self.__dict__
        if "strategy" in built:
            self.strategy.close()
        if built.get("executor") is not None:
            built["executor"].close()

    def _model(self, name: str | None, place: str) -> Path:
        return self._builder.model(name, place) if name else self._policy.folder
